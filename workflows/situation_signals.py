"""Chooses the task groups to poke so that Temporal's tools show why they wait. Pure.

No transaction reports that one begins to wait, or that its reason is another one: others have the hosts, or
nothing fits. The looks of the control worker find it.
"""

from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from uuid import UUID

from mitosis.retry_policy import Backoff, RetryPolicy

PAUSES = RetryPolicy(first_seconds=10.0, longest_seconds=300.0, jitter=0.0)
"""Between the pokes of one task group whose situation keeps changing: an hour costs fewer than 200 events."""
FORGOTTEN_AFTER_SECONDS = 900.0
"""After so long without a poke the pauses begin again with the shortest."""
NOT_IDLE = 0
"""The situation of a host that has a lease again, or that no task group waits for."""
REMEMBERED = 10_000
"""Task groups; one that was forgotten may be poked once more than necessary."""
AT_ONCE = 20
"""A look pokes so many: each makes an explanation, which takes a while where there are many hosts."""


@dataclass(slots=True)
class _Known:
    seen: int | None = None
    signalled: int | None = None
    signalled_at: float = float("-inf")
    next_at: float = float("-inf")
    pauses: Backoff = field(default_factory=lambda: Backoff(PAUSES))


class SituationSignals:
    """The situations of task groups that were found, and those that their workflows were poked about."""

    def __init__(self) -> None:
        self._groups: dict[UUID, _Known] = {}

    def due(self, found: Mapping[UUID, int], now: float) -> list[UUID]:
        """Return the task groups to poke: two looks have found them in the same new situation."""
        due = []
        for group, situation in found.items():
            known = self._groups.pop(group, None)
            known = self._groups[group] = known or _Known()
            lasts, known.seen = known.seen == situation, situation
            if lasts and known.signalled != situation and known.next_at <= now:
                due.append(group)
        while len(self._groups) > REMEMBERED:
            del self._groups[next(iter(self._groups))]
        return due[:AT_ONCE]

    def idle(self) -> Set[UUID]:
        """Return the hosts that were found, and not poked since as no longer idle."""
        return {one for one, known in self._groups.items() if known.signalled != NOT_IDLE}

    def signalled(self, group: UUID, now: float) -> None:
        """Record that a task group was poked."""
        known = self._groups[group]
        if now - known.signalled_at > FORGOTTEN_AFTER_SECONDS:
            known.pauses = Backoff(PAUSES)
        known.signalled, known.signalled_at = known.seen, now
        known.next_at = now + known.pauses.next_pause()
