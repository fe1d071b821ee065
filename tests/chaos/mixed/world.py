"""What groups and troubles of one campaign share: clients, hosts, the database, the log of disturbances."""

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import psutil

from mitosis.client.sync import SyncClient
from mitosis.contracts.errors import Conflict, MitosisError, NotFound
from mitosis.fates import Fate, fate
from tests.chaos.mixed.database import MixedDatabase
from tests.chaos.mixed.facts import Disturbance
from tests.chaos.mixed.hosts import MixedHost
from tests.chaos.mixed.plan import MixedPlan
from tests.chaos.mixed.records import MixedRecords
from tests.chaos.plan import Victim
from tests.chaos.victims import candidates, kill
from tests.support.admin import admin_client
from tests.support.servers import LoopThread
from tests.support.waiting import wait_until

T = TypeVar("T")

Say = Callable[[str], None]
INSIST_SECONDS = 120.0
BACK_SECONDS = 90.0
_pause = threading.Event()
"""Never set: waiting for it is a pause of a thread."""


def pause(seconds: float) -> None:
    """How long a trouble lasts: a part of the plan, not a wait for something."""
    _pause.wait(seconds)


@dataclass
class World:
    plan: MixedPlan
    folder: Path
    data_dir: Path
    up: int
    """Pid of the servers' supervisor."""
    database: MixedDatabase
    hosts: list[MixedHost]
    loop: LoopThread
    say: Say
    disturbances: list[Disturbance] = field(default_factory=list)
    groups_over: threading.Event = field(default_factory=threading.Event)
    failed: threading.Event = field(default_factory=threading.Event)
    """A story or trouble has failed: everything ends."""

    def __post_init__(self) -> None:
        self._kills = threading.Lock()
        self._dice = random.Random(self.plan.seed + 1)
        self._records: dict[int, MixedRecords] = {}
        self._done: dict[int, int] = {}

    def client(self) -> SyncClient:
        return admin_client(self.data_dir)

    def records(self, number: int) -> MixedRecords:
        """Those of one planned group; made when first asked for."""
        if number not in self._records:
            one = MixedRecords(self.folder / "records" / f"{number:03}")
            one.create()
            self._records[number] = one
        return self._records[number]

    def forget(self, number: int) -> None:
        """The group has ended: all its tasks count as done, whatever became of them."""
        self._done[number] = len(self.plan.groups[number].tasks)

    def done(self) -> float:
        """Share of all tasks that have come to an end."""
        going = [n for n in list(self._records) if n not in self._done]
        return (sum(self._done.values()) + sum(self._records[n].done() for n in going)) / max(
            1, self.plan.tasks
        )

    def host(self, manager_id: str) -> MixedHost:
        return next(host for host in self.hosts if str(host.manager_id) == manager_id)

    @contextmanager
    def disturbing(self, trouble: str, host: MixedHost | None) -> Iterator[None]:
        """Log that something happens to a host, or to a server."""
        began = time.monotonic_ns()
        try:
            yield
        finally:
            where = str(host.manager_id) if host is not None else ""
            self.disturbances.append(Disturbance(trouble, where, began, time.monotonic_ns()))

    def kill_server(self, victim: Victim) -> None:
        """Kill -9 one, and wait until it is there again."""
        with self._kills, self.disturbing(victim, None):
            before = {one.pid for one in self._there(victim)}
            kill(self.up, victim, self.data_dir, self._dice)
            wait_until(
                lambda: {one.pid for one in self._there(victim)} - before, BACK_SECONDS, victim
            )
            if victim in (Victim.API, Victim.POSTGRES):
                with self.client() as client:
                    insist(client.me)

    def _there(self, victim: Victim) -> list[psutil.Process]:
        try:
            return candidates(self.up, victim)
        except psutil.NoSuchProcess:
            return []


def insist(call: Callable[[], T]) -> T | None:
    """Repeat a call while its failure passes; None when an earlier try must have had the effect.

    Raises:
        MitosisError: it is refused for good, or for two minutes.
    """
    until, uncertain = time.monotonic() + INSIST_SECONDS, False
    while True:
        try:
            return call()
        except (Conflict, NotFound):
            if not uncertain:
                raise
            return None
        except MitosisError as error:
            if fate(error) is not Fate.PASSING or time.monotonic() > until:
                raise
            uncertain = True
            pause(0.2)
