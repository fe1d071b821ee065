"""The troubles of a campaign, one after the other, each at its moment: kills, cuts, refusals, revocations."""

import random
import signal
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from datetime import timedelta
from pathlib import Path

import psutil

from api.auth import Subject, TokenSigner
from mitosis.client.sync import SyncClient
from mitosis.contracts.errors import MitosisError, Unauthenticated
from tests.chaos.mixed.facts import Revocation
from tests.chaos.mixed.hosts import MixedHost, cut, dead, full, losing, paused, refusing
from tests.chaos.mixed.plan import LARGE, ON_SERVERS, PlannedTrouble, Trouble
from tests.chaos.mixed.wires import Refusal
from tests.chaos.mixed.world import World, insist, pause
from tests.chaos.plan import Victim
from tests.support.admin import admin_address
from tests.support.waiting import wait_until

REPORT = "/managers/tasks/report"
ROBBED = (REPORT, "/claim", "/take", "/hello")
DEPTH = {Trouble.ZYGOTE: 1, Trouble.WORKER: 2, Trouble.COMMAND: 3}
FOUND_SECONDS = 20.0
BACK_SECONDS = 90.0
REFUSED_SECONDS = 60.0
SHORTER = {Trouble.FULL_PIDS: 5.0}
SIGNING_KEY = "signing-key"


class Troubles:
    """Plays the troubles of the plan while the group_runs go on."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._dice = random.Random(world.plan.seed + 2)
        self.revocations: list[Revocation] = []
        self.missed: list[str] = []
        """Troubles that could not be made, and why."""

    def run(self) -> None:
        for planned in self._world.plan.troubles:
            self._wait_for(planned)
            if self._over():
                self.missed.append(f"{planned.trouble}: the groups were over")
                continue
            self._world.say(
                f"{self._world.done():.0%} done: {planned.trouble} on host {planned.host},"
                f" {planned.seconds:g} s"
            )
            self._play(planned)

    def _over(self) -> bool:
        return self._world.groups_over.is_set() or self._world.failed.is_set()

    def _wait_for(self, planned: PlannedTrouble) -> None:
        wait_until(lambda: self._over() or self._world.done() >= planned.at, 3600, interval=0.3)

    def _play(self, planned: PlannedTrouble) -> None:
        trouble, host = planned.trouble, self._world.hosts[planned.host]
        if trouble in ON_SERVERS:
            self._world.kill_server(Victim(trouble))
            return
        match trouble:
            case Trouble.REVOKED:
                self._revoke(host)
            case Trouble.FULL_PIDS if host.pids is None:
                self.missed.append(f"{trouble}: no pids cgroup can be made here")
            case _:
                with self._world.disturbing(trouble, host):
                    self._trouble(trouble, host, planned.seconds)

    def _trouble(self, trouble: Trouble, host: MixedHost, seconds: float) -> None:
        if trouble in DEPTH:
            self._kill_below(trouble, host)
            return
        busy = Refusal(REPORT, "503 Service Unavailable")
        too_large = Refusal(REPORT, "413 Content Too Large", from_bytes=LARGE // 2)
        lasting: dict[Trouble, Callable[[], AbstractContextManager[None]]] = {
            Trouble.AGENT: lambda: dead(host),
            Trouble.PAUSE: lambda: paused(host),
            Trouble.CUT: lambda: cut(host.api, self._world.loop),
            Trouble.CUT_TEMPORAL: lambda: cut(host.temporal, self._world.loop),
            Trouble.LOST_ANSWERS: lambda: losing(host.api, ROBBED),
            Trouble.BUSY_REPORTS: lambda: refusing(host.api, busy),
            Trouble.REFUSED_REPORTS: lambda: refusing(host.api, too_large),
            Trouble.FULL_PIDS: lambda: full(host),
        }
        with lasting[trouble]():
            pause(min(seconds, SHORTER.get(trouble, seconds)))
        if trouble is Trouble.FULL_PIDS:  # the repair that an operator would make
            with self._world.client() as client:
                insist(lambda: client.retry_setup(host.manager_id))

    def _kill_below(self, trouble: Trouble, host: MixedHost) -> None:
        def killed() -> bool:
            found = host.below(DEPTH[trouble])
            if not found:
                return self._over()
            with suppress(psutil.NoSuchProcess):
                self._dice.choice(found).send_signal(signal.SIGKILL)
                return True
            return False

        try:
            wait_until(killed, FOUND_SECONDS)
        except AssertionError:
            self.missed.append(f"{trouble}: {host.name} had none")

    # --- a token that is revoked ----------------------------------------------------------------

    def _revoke(self, host: MixedHost) -> None:
        """Its reports stay in the journal, the agent dies, the next is refused; then a new token."""
        database, manager = self._world.database, host.manager_id
        with self._world.disturbing(Trouble.REVOKED, host):
            refused_from = time.monotonic_ns()
            before = host.api.refused.total()
            host.api.refusal = Refusal(REPORT, "503 Service Unavailable")
            with suppress(AssertionError):  # it may have nothing to report
                wait_until(lambda: host.api.refused.total() > before, FOUND_SECONDS)
            host.kill()
            killed_at, kept = time.monotonic_ns(), journal(host)
            host.api.refusal = None
            database.revoke(manager)
            wait_until(lambda: self._is_refused(host), REFUSED_SECONDS)
            exits = len(host.exits)
            host.start()
            wait_until(host.ended, REFUSED_SECONDS, host.story)
            status = host.exits[-1] if len(host.exits) > exits else None
            after, known = journal(host), database.incarnation(manager)
            host.replace_token(self._new_token(host))
            host.start()
            wait_until(lambda: database.incarnation(manager) > known, BACK_SECONDS, host.story, 0.2)
        self.revocations.append(
            Revocation(
                str(manager),
                refused_from,
                killed_at,
                time.monotonic_ns(),
                status,
                kept,
                after,
            )
        )

    def _is_refused(self, host: MixedHost) -> bool:
        """Whether the API knows that the token of the host is no longer valid: it looks every few seconds."""
        url, _ = admin_address(self._world.data_dir)
        try:
            with SyncClient(url, host.token, give_up_after=timedelta()) as client:
                client.me()
        except Unauthenticated:
            return True
        except MitosisError:
            return False
        return False

    def _new_token(self, host: MixedHost) -> str:
        [key] = self._world.data_dir.rglob(SIGNING_KEY)
        version = self._world.database.token_version(host.manager_id)
        subject = Subject("manager", host.manager_id, version)
        return TokenSigner(key.read_bytes()).issue(subject, timedelta(days=1)).token


def journal(host: MixedHost) -> bytes:
    path: Path = host.state_dir / "journal"
    return path.read_bytes().rstrip(b"\0")
