"""The operations of the control worker on PostgreSQL outside activities. The store implements them.

The other ports are beside their activities (``activities/task_groups.py``, ``activities/managers.py``).
"""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol
from uuid import UUID

from mitosis.contracts.control import Expected, Poke, WaitingWork
from mitosis.contracts.schedule_control import CarriedSchedule, UnreadableSchedule
from workflows.versions import BuildsPort


class Listener(Protocol):
    """One direct connection that LISTENs to ``temporal_names.OUTBOX_CHANNEL``."""

    async def wait(self, seconds: float) -> bool:
        """Wait up to ``seconds``; return whether a notification came. Several may count as one.

        Raises:
            DatabaseUnavailable: the connection is gone; open another listener.
        """
        ...


class OutboxPort(Protocol):
    """The outbox, for relays in any number of processes (protocol P6)."""

    async def take_pokes(self, limit: int) -> Sequence[Poke]:
        """Return up to ``limit`` due pokes, oldest first, and hide them from other relays for a while.

        One statement: ``attempts`` + 1 and ``due_at`` moved by ``min(60, 2 ** attempts)`` seconds
        (FOR UPDATE SKIP LOCKED), so a relay that dies or cannot send needs no second call.
        """
        ...

    async def delete_pokes(self, ids: Sequence[int]) -> None:
        """Delete pokes that have been sent."""
        ...

    def listen_for_pokes(self) -> AbstractAsyncContextManager[Listener]:
        """LISTEN first, then take, then wait, so that nothing is missed."""
        ...


class DeletionPort(Protocol):
    """The rows of deleted task groups (protocol P8)."""

    async def delete_chunk(self, limit: int) -> bool:
        """Delete up to ``limit`` rows of a deleted group; return whether there may be more to do.

        One transaction, in any number of processes at once.
        """
        ...


class BackstopPort(Protocol):
    """What API processes do at once, for what they missed."""

    async def resolve_dependencies(self) -> None:
        """Free or cancel the children of all tasks that have ended, where that has not been done (P14)."""
        ...

    async def advance_runs(self) -> None:
        """Carry on every run that waits for it: ended tasks, a timeout, its turn (P15)."""
        ...


class ExpectedPort(Protocol):
    """The part of reconcile that PostgreSQL knows."""

    async def expected(self) -> Expected:
        """Return every subject whose workflow must be running now."""
        ...


class LookPort(Protocol):
    """The backstop of every wakeup (protocol P7)."""

    async def look(self) -> WaitingWork:
        """Return what waits for a round of the scheduler. Reads only."""
        ...


class SchedulesPort(Protocol):
    """Schedules of jobs (protocol P17)."""

    async def carried_schedules(
        self, schedule_id: UUID | None = None
    ) -> Sequence[CarriedSchedule | UnreadableSchedule]:
        """Return all schedules, or one if it is there. One that cannot be read stops no other."""
        ...

    async def note_carried(self, carried: CarriedSchedule) -> None:
        """Note that Temporal has the schedule as it was read."""
        ...

    async def note_problem(
        self, carried: CarriedSchedule | UnreadableSchedule, problem: str
    ) -> None:
        """Show why Temporal does not have the schedule as it was read."""
        ...

    async def due_schedules(self) -> Sequence[UUID]:
        """Return the schedules that may have a run to start."""
        ...

    async def take_schedule_turn(self, schedule_id: UUID) -> bool:
        """Start runs of a schedule that are due, a bounded number; return whether more are left."""
        ...

    async def note_reverted(self, carried: CarriedSchedule, what: str) -> None:
        """Show that a change by hand in Temporal was undone, unless the row has changed by now."""
        ...


class HousekeepingPort(
    ExpectedPort, DeletionPort, BackstopPort, LookPort, SchedulesPort, BuildsPort, Protocol
):
    """What the control worker does besides sending pokes."""
