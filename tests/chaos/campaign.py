"""Drives one campaign: a real stack, one group of tasks, a kill -9 at each planned moment.

Judges nothing: it collects :class:`~tests.chaos.facts.Facts` for the checker.
"""

import random
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path

import psutil

from mitosis.client.sync import SyncClient
from mitosis.contracts.allocation import WorkerAllocationPlan
from mitosis.contracts.errors import ApiUnavailable
from mitosis.contracts.http import TaskGroupSpec
from tests.chaos.database import CampaignDatabase
from tests.chaos.facts import Facts, Kill
from tests.chaos.plan import Plan, PlannedKill, Topology, Victim
from tests.chaos.records import Records
from tests.chaos.victims import candidates, kill, stop
from tests.support.admin import admin_client
from tests.support.prepared import PreparedPopen
from tests.support.processes import descendants, living
from tests.support.program import running_up
from tests.support.waiting import wait_until

GROUP = "chaos"
ROOT = str(Path(__file__).parents[2])
MARKER = "CHAOS_CAMPAIGN"
"""A variable in the environment of everything that the campaign starts."""
FEW = 10
PROGRESS_SECONDS = 150.0
SETTLED_AFTER = timedelta(seconds=150)
REPLACED_SECONDS = 30.0
LAST_WORDS_SECONDS = 30.0

Say = Callable[[str], None]


@dataclass
class Campaign:
    """One run in an empty ``folder``, whose ``run_dir`` (short, also empty) is for sockets."""

    plan: Plan
    folder: Path
    run_dir: Path
    say: Say = print
    marker: str = field(default_factory=lambda: uuid.uuid4().hex)

    def __post_init__(self) -> None:
        self.data_dir = self.folder / "data"
        self.stack_run_dir = self.run_dir / "stack"
        self.records = Records(self.folder / "records")
        self._dice = random.Random(self.plan.seed + 1)
        self._ever: list[psutil.Process] = []
        self._beside: list[str] = []
        self._exits = ExitStack()
        self._up: PreparedPopen

    def run(self) -> Facts:
        """All of it, to the end of the stack.

        Raises:
            AssertionError: a part did not come back, or the group did not settle.
        """
        check_code()
        self.records.create()
        with self._exits:
            self._start()
            self._create_group()
            database = CampaignDatabase.of(self.data_dir, self.stack_run_dir, GROUP)
            with ThreadPoolExecutor(1) as beside:
                submitting = beside.submit(self._submit)
                kills = [
                    one for planned in self.plan.kills for one in self._kill(planned, database)
                ]
                submitted = submitting.result()
            self._settle()
            self._wait_for_last_words(database)
            facts = self._facts(submitted, tuple(kills), database)
            self._stop()
        return self._with_leftovers(facts)

    def _start(self) -> None:
        more = {
            "XDG_RUNTIME_DIR": str(self.run_dir),
            "MITOSIS_RUN_DIR": str(self.stack_run_dir),
            MARKER: self.marker,
        }
        parts = ("tests.chaos.parts", str(self.data_dir))
        program = parts if self.plan.topology is Topology.PARTS else ()
        self._up = self._exits.enter_context(running_up(self.data_dir, more=more, program=program))

    def _client(self) -> SyncClient:
        return admin_client(self.data_dir)

    def _create_group(self) -> None:
        allocation = WorkerAllocationPlan(
            worker_count=self.plan.workers,
            handler_modules=("tests.chaos.task",),
            python_path=(ROOT,),
            environment=self.records.environment,
        )
        spec = TaskGroupSpec(
            name=GROUP,
            worker_allocation_plan=allocation,
            environment_setup_hook=self.records.setup(),
            environment_teardown_hook=self.records.teardown(),
        )
        with self._client() as client:
            client.create_group(spec)

    def _submit(self) -> tuple[int, ...]:
        """Half of the tasks at once, the others a few at a time while the first are killed."""
        tasks = [task.submission() for task in self.plan.tasks]
        first = len(tasks) // 2
        with self._client() as client:
            ids = client.submit(GROUP, tasks[:first])
            for start in range(first, len(tasks), FEW):
                self._until_done(start - first)
                ids += client.submit(GROUP, tasks[start : start + FEW])
            client.close_group(GROUP)
        return tuple(ids)

    def _until_done(self, count: float) -> None:
        wait_until(
            lambda: self.records.done() >= count, PROGRESS_SECONDS, self._story, interval=0.05
        )

    def _kill(self, planned: PlannedKill, database: CampaignDatabase) -> list[Kill]:
        """One moment of the plan, until all workers are there (again)."""
        self._until_done(planned.at * len(self.plan.tasks))
        live = wait_until(database.lease_live, PROGRESS_SECONDS, self._story)
        self._ever += descendants(self._up.pid)
        kills = [self._kill_one(victim, live, database) for victim in planned.victims]
        wait_until(lambda: self._workers() == self.plan.workers, REPLACED_SECONDS, self._story)
        return kills

    def _kill_one(self, victim: Victim, live: bool, database: CampaignDatabase) -> Kill:
        unsent = self._keep_from_sending(database) if victim is Victim.RELAY else 0
        before, at = self.records.done(), time.monotonic_ns()
        kill(self._up.pid, victim, self.data_dir, self._dice)
        after = self.records.done()
        self.say(f"killed {victim} at {before} of {len(self.plan.tasks)}")
        if victim is Victim.SUPERVISOR:
            self._up.wait()
            self._start()
        return Kill(victim, at, before, after, live, unsent)

    def _keep_from_sending(self, database: CampaignDatabase) -> int:
        """Stop the relay and have the API write what it must send; how many rows wait for it."""
        stop(self._up.pid, Victim.RELAY)
        name = f"{GROUP}-beside-{len(self._beside)}"
        with self._client() as client:
            client.create_group(TaskGroupSpec(name=name))
        self._beside.append(name)
        return database.unsent()

    def _created(self, client: SyncClient, name: str) -> bool:
        """Make the group; False if the API, which may have been killed before, is not back yet."""
        try:
            client.create_group(TaskGroupSpec(name=name))
        except ApiUnavailable:
            return False
        return True

    def _settle(self) -> None:
        """Close the groups beside ours, which a relay died with, and wait for all.

        Raises:
            AssertionError: one does not settle.
        """
        with self._client() as client:
            for name in self._beside:
                client.close_group(name)
            for name in (GROUP, *self._beside):
                info = client.wait(name, timeout=SETTLED_AFTER)
                assert info.settled, info

    def _workers(self) -> int:
        """How many live; 0 while what is above them comes or goes."""
        try:
            return len(living(candidates(self._up.pid, Victim.WORKER)))
        except psutil.NoSuchProcess:
            return 0

    def _wait_for_last_words(self, database: CampaignDatabase) -> None:
        """A group settles before the last word about it is delivered and its workers have ended."""
        wait_until(
            lambda: not any(database.leftovers().values()),
            LAST_WORDS_SECONDS,
            database.leftovers,
        )

    def _facts(
        self, submitted: tuple[int, ...], kills: tuple[Kill, ...], database: CampaignDatabase
    ) -> Facts:
        return Facts(
            plan=self.plan,
            submitted=submitted,
            executions=self.records.executions(),
            kills=kills,
            results=database.results(),
            failures=database.failures(),
            counters=database.counters(),
            counted=database.counted(),
            group=database.state(),
            hooks=self.records.hooks(),
            hook_runs=database.hook_runs(),
            leftovers=database.leftovers(),
        )

    def _stop(self) -> None:
        self._ever += descendants(self._up.pid)
        self._up.send_signal(signal.SIGINT)
        assert self._up.wait(90) == 0

    def _with_leftovers(self, facts: Facts) -> Facts:
        scratch = self.data_dir.glob("agent/**/scratch")
        more = {
            "processes by ancestry": tuple(map(str, living(self._ever))),
            "processes by marker": tuple(map(str, marked(self.marker))),
            "run folder": tuple(str(path) for path in self.run_dir.rglob("*")),
            "environment": tuple(map(str, self.folder.glob("records/environment"))),
            "scratch": tuple(map(str, scratch)),
            "connection": tuple(map(str, self.data_dir.glob("connection.json"))),
        }
        return replace(facts, leftovers={**facts.leftovers, **more})

    def _story(self) -> str:
        log = self.data_dir.with_name("data.up.log")
        return f"{self.records.done()} done; {log.read_text()[-3000:]}"


def check_code() -> None:
    """The programs must run the code beside these tests, not that of where the environment was made.

    Raises:
        AssertionError: somebody copied the folder with its environment; a fault put into the copy
            would stay unseen.
    """
    argv = [sys.executable, "-P", "-c", "import mitosis; print(mitosis.__file__)"]
    told = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    assert told.startswith(f"{ROOT}/"), f"the programs run {told}"


def marked(marker: str) -> list[int]:
    """Pids of live processes that were started with the marker in their environment."""
    wanted, found = f"{MARKER}={marker}".encode(), []
    for process in psutil.process_iter():
        try:
            variables = Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if wanted in variables and living([process]):
            found.append(process.pid)
    return found
