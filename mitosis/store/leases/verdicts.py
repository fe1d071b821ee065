"""Decides who is to blame when tasks fail on a host: the host or the tasks (C-33). Pure.

A host is *watched* from its first failure on; the final failures of its tasks are doubted until it succeeds,
or until nothing more can come. After ``quarantine_after`` different tasks in a row it is *suspected*: it
claims nothing, and three of the doubted tasks at a time are tried on other hosts. A host where such a trial
fails before it has succeeded is suspected at once: it may be broken too. If two tasks that failed
there succeed elsewhere it is *quarantined*, and every task gets its attempts back. If two more fail elsewhere
than succeed, the tasks are to blame: their failures are final, and the host is *excused* for a while. If
nothing is left to try, its streak begins again. Without another host nothing is doubted.

Another host counts also while it is away, because it may be starting again: for three minutes for what is
not decided, and for an hour for a host that is quarantined, which was shown to be broken. A host that is
alone for longer is believed. One that works for another task group counts for three minutes from the last
failure. ``docs/protocol.md`` (P16) has all rules.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum, StrEnum

from mitosis.contracts.host_failures import QUARANTINE_AFTER

SUCCEEDED_ELSEWHERE = 2
"""So many of them succeed elsewhere before it is quarantined."""
SUSPECTED_BY_TRIALS = 3
"""A host on which a trial fails is suspected at once unless so many are suspected already."""
TRIED_ELSEWHERE = 3
"""So many doubted tasks at a time are tried on other hosts while it is suspected."""
DOUBT_SECONDS = 60.0
"""A failure on a watched host is final after this time."""
SUSPECTED_SECONDS = 600.0
"""A host is suspected at most this long, unless another one that serves the group has still to decide it."""
EXCUSED_SECONDS = 600.0
"""An excused host is not suspected again for this long."""
AWAITED_SECONDS = 180.0
"""So long after its last contact another host is expected back: what it could decide waits for it."""
QUARANTINE_KEPT_SECONDS = 3600.0
"""A host that has been alone for so long is no longer quarantined; the longest pause between its probes."""
OTHERS_FIRST_SECONDS = 5.0
"""For this long only other hosts may claim a task that failed on a host, if there are any."""


class Phase(StrEnum):
    """What is known about a host whose tasks fail in a task group."""

    WATCHED = "watched"
    SUSPECTED = "suspected"
    EXCUSED = "excused"
    CLEARED = "cleared"
    QUARANTINED = "quarantined"


class Verdict(Enum):
    """The next step for a host and the doubted failures of its tasks."""

    WAIT = "wait"
    FAIL = "fail"
    """The doubted failures are final; the host stays as it is."""
    FORGET = "forget"
    """The doubted failures are final, and nothing is known against the host any more."""
    SUSPECT = "suspect"
    TRY = "try"
    """More of its tasks are tried on other hosts: those that were have not decided it."""
    EXCUSE = "excuse"
    QUARANTINE = "quarantine"
    RELEASE = "release"
    """The host is quarantined already: its tasks get their attempts back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """A host whose tasks failed, and what is known since its last success in the group."""

    manager: int
    name: str
    phase: Phase | None
    """None: its process died between a report and its judgement."""
    failures: int
    """Different tasks in a row."""
    tasks: tuple[int, ...]
    """The first 32 of them."""
    same_process: bool | None
    """Its agent has not been started again since the phase began."""
    left_seconds: float | None
    """Until the end of the phase."""
    doubted: tuple[int, ...]
    """Tasks whose failure there is not final."""
    succeeded_elsewhere: int
    failed_elsewhere: int
    """Of ``tasks``, with final results."""
    trying: int
    """Of ``tasks``, open ones whose failure there has given way to another attempt."""
    has_more: bool
    """It holds tasks of the group, or can claim more."""
    may_get_more: bool = False
    """Tasks wait for another attempt, or their failures on other hosts are doubted: they may come to it."""
    others: bool
    """Another host could run them, and is not suspected itself."""
    serving: bool = False
    """Of a suspected or excused host: such a host has a lease of the group, or tries one of them now."""
    fails_trials: bool = False
    """Some of its doubted tasks are trials for another suspected host: see :func:`with_trials`."""
    away_seconds: float | None
    """Of another host that could run them when it is back or free; None: there is none."""

    def expects_another(self, seconds: float = AWAITED_SECONDS) -> bool:
        """Return whether another host could run its tasks, or was there less than ``seconds`` ago."""
        return self.others or (self.away_seconds is not None and self.away_seconds < seconds)

    @property
    def in_a_row(self) -> int:
        """Return how many different tasks failed there in a row; the last report may not be noted yet."""
        return max(self.failures, len(self.doubted))

    @property
    def is_over(self) -> bool:
        """Whether the time of the phase has passed."""
        return self.left_seconds is not None and self.left_seconds <= 0

    @property
    def fails_elsewhere(self) -> bool:
        """Whether its tasks are to blame, since they fail on other hosts too."""
        return self.failed_elsewhere - self.succeeded_elsewhere >= SUCCEEDED_ELSEWHERE

    @property
    def is_undecided(self) -> bool:
        """Whether no other host is expected, or one that is there has not tried its tasks for too long."""
        return (self.others and self.is_over) or not self.expects_another()


def with_trials(suspects: Sequence[Suspect]) -> Sequence[Suspect]:
    """Note of each suspect of a group whether trials for another one failed there."""
    suspected = [one for one in suspects if one.phase is Phase.SUSPECTED]
    if not suspected or len(suspected) >= SUSPECTED_BY_TRIALS:
        return suspects
    tried = {task for one in suspected for task in one.tasks}
    return [
        one
        if one.phase is Phase.SUSPECTED
        else replace(one, fails_trials=not tried.isdisjoint(one.doubted))
        for one in suspects
    ]


def judge(suspect: Suspect, *, goes_on: bool, quarantine_after: int = QUARANTINE_AFTER) -> Verdict:
    """Return the next step; ``goes_on``: whether the group still runs tasks."""
    if not goes_on:
        return Verdict.FORGET
    match suspect.phase:
        case Phase.CLEARED:
            return Verdict.FORGET
        case Phase.QUARANTINED:
            kept = suspect.expects_another(QUARANTINE_KEPT_SECONDS)
            return Verdict.RELEASE if kept else Verdict.FORGET
        case Phase.EXCUSED:
            tried = suspect.serving and not suspect.fails_elsewhere
            return Verdict.FORGET if suspect.is_over or tried else Verdict.FAIL
        case Phase.SUSPECTED:
            return _suspected(suspect)
        case _:
            return _watched(suspect, quarantine_after)


def _watched(suspect: Suspect, quarantine_after: int) -> Verdict:
    expects = suspect.expects_another()
    if expects and (suspect.in_a_row >= quarantine_after or suspect.fails_trials):
        return Verdict.SUSPECT
    comes = suspect.has_more or suspect.may_get_more
    waits = expects and comes and not suspect.is_over
    return Verdict.WAIT if waits else Verdict.FAIL


def _suspected(suspect: Suspect) -> Verdict:
    if suspect.succeeded_elsewhere >= SUCCEEDED_ELSEWHERE:
        return Verdict.QUARANTINE
    if suspect.fails_elsewhere or (suspect.is_undecided and not suspect.serving):
        return Verdict.EXCUSE
    if suspect.trying:
        return Verdict.WAIT
    return Verdict.TRY if suspect.doubted else Verdict.FORGET
