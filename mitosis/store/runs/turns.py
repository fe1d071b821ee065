"""Gives runs their turns (protocol P15): one transaction each, one run after the other.

Any process may carry on any run. API processes do it when tasks of steps have ended, the control worker
looks every 5 s. A run that has more to do goes to the end of the queue. One that fails waits, alone, longer
each time.
"""

import asyncio
import logging
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from mitosis.contracts.errors import NotFound
from mitosis.contracts.lifecycle import RUN
from mitosis.contracts.task_cancel import CancelTasks
from mitosis.retry_policy import Backoff, RetryPolicy
from mitosis.store.pg.arrays import number_array
from mitosis.store.pg.rows import fetch_all, fetch_one
from mitosis.store.pg.statements import load
from mitosis.store.runs.advance import carry_on, may_pass
from mitosis.store.runs.giving_up import end_as_failed, stop_all
from mitosis.store.runs.rows import TURN, Loaded, lock_run
from mitosis.store.store import Store
from mitosis.store.tasks.cancel import CHUNK as CANCEL_CHUNK
from mitosis.store.tasks.cancel import cancel_tasks

SQL = load("runs/turns.sql")
DUE = SQL["due"].replace("$turn$", TURN)
LOOK = SQL["look"].replace("$due$", DUE)
AT_ONCE = 4
"""So many runs have their turns at the same time in one process: each takes a connection."""
SLICE_SECONDS = 5.0
"""One call works for about so long."""
PAUSES = RetryPolicy(first_seconds=1.0, longest_seconds=60.0)
BUSY_TASKS = 500
REST_SECONDS = 0.1
"""A run with more than so many open tasks, of which only the ends are counted, has its next turn after this:
each end of a task announces it, and a turn costs more than the tasks of a few milliseconds."""
MOST_FAILURES = 10
"""A run is ended after so many failures in a row that do not pass, in about 4 minutes."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Number:
    id: int


@dataclass(frozen=True, slots=True)
class _Look:
    revision: int
    due: bool


@dataclass(frozen=True, slots=True)
class _Ends:
    left_over: bool


@dataclass(frozen=True, slots=True)
class _ToCancel:
    task_group: UUID
    reason: str | None
    grace_seconds: float | None
    task_ids: list[int]


@dataclass(slots=True)
class _Failures:
    """Turns of one run that failed in a row, at the same revision."""

    revision: int
    backoff: Backoff = field(default_factory=lambda: Backoff(PAUSES))
    lasting: int = 0
    """Failures that do not pass."""
    again_at: float = 0.0


@dataclass(frozen=True, slots=True)
class Turn:
    """What follows from one turn."""

    again: bool = False
    following: Sequence[int] = ()
    """The run whose turn it is when this one has ended."""
    rests: bool = False
    """The next turn of the run is not at once."""


class Turns:
    """The runs that one process carries on, in the order of their turns."""

    def __init__(self, store: Store, *, refills: bool = True) -> None:
        self._store = store
        self._refills = refills
        self._waiting: dict[int, None] = {}
        self._failures: dict[int, _Failures] = {}
        self._resting: dict[int, float] = {}
        """Run -> when it may have its next turn."""
        self._after_rest: dict[int, None] = {}

    def add(self, runs: Iterable[int]) -> None:
        """Add runs at the end. One that has failed or is busy keeps its pause."""
        for run in runs:
            if run in self._resting:
                self._after_rest.setdefault(run)
            elif run not in self._failures:
                self._waiting.setdefault(run)

    async def add_due(self) -> None:
        """Add every run that has something to do."""
        statement = SQL["due_runs"].replace("$due$", DUE)
        async with self._store.database.connection() as connection:
            found = await fetch_all(connection, _Number, statement, {})
        self.add(one.id for one in found)

    async def add_steps(self, steps: Sequence[int]) -> None:
        """Add the runs of these steps."""
        given = {"steps": number_array(steps)}
        async with self._store.database.connection() as connection:
            found = await fetch_all(connection, _Number, SQL["runs_of_steps"], given)
        self.add(one.id for one in found)

    def pause(self) -> float | None:
        """Return the seconds until a run has its turn; None: none waits."""
        if self._waiting:
            return 0.0
        times = [one.again_at for one in self._failures.values()]
        times += [self._resting[run] for run in self._after_rest]
        return max(min(times) - time.monotonic(), 0.0) if times else None

    async def take(self) -> None:
        """Give the first run its turn. It never fails: a run that cannot be carried on waits."""
        self._end_pauses()
        if not self._waiting:
            return
        number = next(iter(self._waiting))
        del self._waiting[number]
        looked = None
        try:
            looked = await self._look(number)
            turn = Turn()
            if looked is not None and looked.due:
                turn = await take_turn(self._store, number, refills=self._refills)
        except Exception as error:  # noqa: BLE001 - a fault of one run holds up no other
            await self._failed(number, looked, error)
            return
        self._failures.pop(number, None)
        if turn.rests:
            self._resting[number] = time.monotonic() + REST_SECONDS
        self.add([number] if turn.again else [])
        self.add(turn.following)

    def _end_pauses(self) -> None:
        now = time.monotonic()
        for run, failures in self._failures.items():
            if failures.again_at <= now:
                self._waiting.setdefault(run)
        for run in [run for run, until in self._resting.items() if until <= now]:
            del self._resting[run]
            if run in self._after_rest:
                del self._after_rest[run]
                self._waiting.setdefault(run)

    async def take_all(self, seconds: float = SLICE_SECONDS) -> None:
        """Give turns until no run has more to do, or for about so long."""
        until = time.monotonic() + seconds
        while self.pause() == 0.0 and time.monotonic() < until:
            await self.take_some()

    async def take_some(self) -> None:
        """Give the first runs their turns at the same time."""
        await asyncio.gather(*(self.take() for _ in range(AT_ONCE)))

    async def _look(self, number: int) -> _Look | None:
        async with self._store.database.connection() as connection:
            return await fetch_one(connection, _Look, LOOK, {"run": number})

    async def _failed(self, number: int, looked: _Look | None, error: Exception) -> None:
        """Let a run wait, and longer each time. End one that does not come any further."""
        revision = 0 if looked is None else looked.revision
        failures = self._failures.get(number)
        if failures is None or failures.revision != revision:  # another process carries it on
            failures = self._failures[number] = _Failures(revision)
        failures.lasting += not may_pass(error)
        failures.again_at = time.monotonic() + failures.backoff.next_pause()
        log.warning(
            "run.not_advanced",
            extra={"run": number, "failures": failures.backoff.failures, "reason": str(error)},
            exc_info=None if may_pass(error) else error,
        )
        if failures.lasting >= MOST_FAILURES:
            try:
                await give_up(self._store, number, f"it cannot be carried on: {error!r}")
            except Exception:  # tried again after the pause
                log.exception("run.not_ended", extra={"run": number})


async def advance_run(store: Store, number: int) -> None:
    """Carry on one run as far as it comes now, for a few seconds; then the next run of its job."""
    turns = Turns(store)
    turns.add([number])
    await turns.take_all()


async def take_turn(store: Store, number: int, *, refills: bool = True) -> Turn:
    """Carry on a run by one transaction, and cancel one chunk of the tasks that are to be cancelled."""
    async with store.database.transaction() as connection:
        loaded = await lock_run(connection, number)
        moved = loaded is not None and await carry_on(connection, store, loaded, refills=refills)
    if loaded is None:
        return Turn()  # its holder looks again
    if loaded.run.state in RUN.terminal:
        async with store.database.connection() as connection:
            found = await fetch_all(connection, _Number, SQL["next_pending"], {"run": number})
        return Turn(following=[one.id for one in found])
    stopped = any(step.open and step.stopped_by is not None for step in loaded.steps)
    again = stopped and await cancel_some(store, number)
    return Turn(
        again=again or moved or await _ends_left(store, number),
        rests=not stopped and _only_counts(loaded),
    )


def _only_counts(loaded: Loaded) -> bool:
    """Return whether nothing is to be done for a while but to count ends of tasks."""
    return (
        loaded.definition.max_concurrent_tasks is None
        and not any(step.creating for step in loaded.steps)
        and sum(step.open for step in loaded.steps) > BUSY_TASKS
    )


async def _ends_left(store: Store, number: int) -> bool:
    """Return whether tasks have ended since; who was notified of it found the run locked."""
    async with store.database.connection() as connection:
        found = await fetch_one(connection, _Ends, SQL["ends_left"], {"run": number})
    return found is not None and found.left_over


async def cancel_some(store: Store, number: int) -> bool:
    """Cancel a chunk of the open tasks of stopped steps; return whether there were any."""
    given = {"run": number, "limit": CANCEL_CHUNK}
    async with store.database.connection() as connection:
        tasks = await fetch_one(connection, _ToCancel, SQL["tasks_to_cancel"], given)
    if tasks is None:
        return False
    reason = tasks.reason or "its run was cancelled"
    asked = CancelTasks(
        task_ids=tuple(tasks.task_ids), reason=reason[:1000], grace_seconds=tasks.grace_seconds
    )
    try:
        await cancel_tasks(store, tasks.task_group, asked)
    except NotFound:  # deleted since, with its tasks
        return False
    return True


async def give_up(store: Store, number: int, reason: str) -> None:
    """End a run that cannot be carried on as failed, after its open tasks. It may be repeated."""
    await stop_all(store, number, reason)
    while await cancel_some(store, number):
        pass
    await end_as_failed(store, number)
