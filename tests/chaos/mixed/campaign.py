"""Drives one campaign: servers in parts, hosts behind wires, several groups at once, verbs and troubles.

Judges nothing: it collects :class:`~tests.chaos.mixed.facts.MixedFacts`.
"""

import signal
import threading
import uuid
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

import psutil

from mitosis.cli.connection import read_connection
from mitosis.embedded.data_folder import DataFolder
from mitosis.embedded.postgres import EmbeddedPostgres
from tests.chaos.campaign import MARKER, check_code, marked
from tests.chaos.mixed.database import MixedDatabase
from tests.chaos.mixed.facts import MixedFacts
from tests.chaos.mixed.group_run import GroupRun
from tests.chaos.mixed.hosts import MixedHost, PidsGroup
from tests.chaos.mixed.plan import GROUPS_AT_ONCE, MixedPlan
from tests.chaos.mixed.troubles import Troubles
from tests.chaos.mixed.watch import Watch
from tests.chaos.mixed.wires import RefusingWire
from tests.chaos.mixed.world import Say, World
from tests.support.admin import admin_token_file
from tests.support.prepared import PreparedPopen
from tests.support.processes import descendants, living
from tests.support.program import running_up
from tests.support.servers import LoopThread
from tests.support.waiting import wait_until

LOST_AFTER_SECONDS = 20
SETTLED_BESIDE_SECONDS = 120.0


@dataclass
class MixedCampaign:
    """One run in an empty ``folder``, whose ``run_dir`` (short, also empty) is for sockets."""

    plan: MixedPlan
    folder: Path
    run_dir: Path
    say: Say = print
    marker: str = field(default_factory=lambda: uuid.uuid4().hex)

    def __post_init__(self) -> None:
        self.data_dir = self.folder / "data"
        self._ever: list[psutil.Process] = []
        self._pids: list[PidsGroup] = []

    def run(self) -> MixedFacts:
        """All of it, to the end of the stack.

        Raises:
            AssertionError: a part did not come back, or a group did not settle.
        """
        check_code()
        with ExitStack() as exits:
            up = self._start_servers(exits)
            loop = exits.enter_context(LoopThread())
            world = self._world(exits, up, loop)
            watch, troubles = Watch(world), Troubles(world)
            watch.start()
            exits.callback(watch.end)
            group_runs = self._play(world, troubles)
            wait_until(
                lambda: not any(world.database.leftovers().values()),
                SETTLED_BESIDE_SECONDS,
                world.database.leftovers,
                interval=0.5,
            )
            watch.measure()
            facts = self._facts(world, troubles, watch, group_runs)
            self._ever += [*descendants(up.pid), *self._of_hosts(world)]
            for host in world.hosts:
                host.end()
            up.send_signal(signal.SIGINT)
            assert up.wait(90) == 0
        for missed in troubles.missed:
            self.say(f"not tried: {missed}")
        return self._with_leftovers(facts)

    def _start_servers(self, exits: ExitStack) -> PreparedPopen:
        more = {
            "XDG_RUNTIME_DIR": str(self.run_dir),
            "MITOSIS_RUN_DIR": str(self.run_dir / "stack"),
            "MITOSIS_HOSTS__LOST_AFTER_SECONDS": str(LOST_AFTER_SECONDS),
            MARKER: self.marker,
        }
        program = ["tests.chaos.parts", str(self.data_dir), "no-agent"]
        return exits.enter_context(running_up(self.data_dir, more=more, program=program))

    def _world(self, exits: ExitStack, up: PreparedPopen, loop: LoopThread) -> World:
        url = EmbeddedPostgres(DataFolder(self.data_dir, self.run_dir / "stack")).url()
        hosts = [self._host(exits, loop, number) for number in range(self.plan.hosts)]
        return World(
            self.plan,
            self.folder,
            self.data_dir,
            up.pid,
            MixedDatabase(url),
            hosts,
            loop,
            self.say,
        )

    def _host(self, exits: ExitStack, loop: LoopThread, number: int) -> MixedHost:
        found = read_connection(self.data_dir)
        assert found is not None
        api, temporal = (
            self._wire(exits, loop, url)
            for url in (found.api_url, f"http://{found.temporal_address}")
        )
        name = f"host-{number}"
        pids = PidsGroup.make(f"mitosis-mixed-{self.marker[:8]}-{number}")
        if pids is not None:
            self._pids.append(pids)
            exits.callback(pids.remove)
        environment = {
            "XDG_RUNTIME_DIR": str(self.run_dir),
            "MITOSIS_RUN_DIR": str(self.run_dir / name),
            "MITOSIS_API_URL": api.url,
            "MITOSIS_API__TOKEN_FILE": str(admin_token_file(self.data_dir)),
            "MITOSIS_TEMPORAL_ADDRESS": temporal.url.removeprefix("http://"),
            "MITOSIS_AGENT__NAME": name,
            MARKER: self.marker,
        }
        host = MixedHost(name, self.folder / name, environment, api, temporal, pids)
        host.begin()
        exits.callback(host.end)
        return host

    def _wire(self, exits: ExitStack, loop: LoopThread, url: str) -> RefusingWire:
        opening = RefusingWire(url).open()
        wire = loop.run(opening.__aenter__())
        exits.callback(lambda: loop.run(opening.__aexit__(None, None, None)))
        assert isinstance(wire, RefusingWire)
        return wire

    def _play(self, world: World, troubles: Troubles) -> list[GroupRun]:
        """Stories and troubles beside each other, to the end of both.

        Raises:
            AssertionError: one of them failed; the first failure.
        """
        group_runs = [GroupRun(planned, world) for planned in self.plan.groups]
        with ThreadPoolExecutor(GROUPS_AT_ONCE) as pool, ThreadPoolExecutor(1) as beside:
            playing = beside.submit(troubles.run)
            told = [pool.submit(group_run.run) for group_run in group_runs]
            self._until_over(world, [*told, playing], told)
        return group_runs

    def _until_over(
        self, world: World, all_of_it: "list[Future[None]]", told: "list[Future[None]]"
    ) -> None:
        over = threading.Thread(target=_set_after, args=(told, world.groups_over))
        over.start()
        done, _ = wait(all_of_it, return_when=FIRST_EXCEPTION)
        if any(future.exception() for future in done):
            world.failed.set()
        for future in all_of_it:
            future.cancel()
        over.join()
        for future in done:
            future.result()

    def _of_hosts(self, world: World) -> list[psutil.Process]:
        agents = [agent for host in world.hosts if (agent := host.agent()) is not None]
        return [one for agent in agents for one in (agent, *descendants(agent.pid))]

    def _facts(
        self, world: World, troubles: Troubles, watch: Watch, group_runs: list[GroupRun]
    ) -> MixedFacts:
        idle = watch.end()
        return MixedFacts(
            plan=self.plan,
            groups=tuple(group_run.facts() for group_run in group_runs),
            disturbances=tuple(world.disturbances),
            revocations=tuple(troubles.revocations),
            exits=tuple((str(h.manager_id), status) for h in world.hosts for status in h.exits),
            idle=idle,
            histories=dict(watch.histories),
            leftovers=world.database.leftovers(),
        )

    def _with_leftovers(self, facts: MixedFacts) -> MixedFacts:
        more = {
            "processes by ancestry": tuple(map(str, living(self._ever))),
            "processes by marker": tuple(map(str, marked(self.marker))),
            "run folder": tuple(str(path) for path in self.run_dir.glob("*/*")),
            "environments": tuple(map(str, self.folder.glob("records/*/on-*"))),
            "scratch": tuple(map(str, self.folder.glob("host-*/agent/**/scratch"))),
            "cgroups": tuple(str(g.folder) for g in self._pids if g.folder.exists()),
        }
        return replace(facts, leftovers={**facts.leftovers, **more})


def _set_after(futures: "list[Future[None]]", event: threading.Event) -> None:
    wait(futures)
    event.set()
