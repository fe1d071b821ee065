"""What is known of a campaign after its end: plain values for the checker to judge."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.chaos.plan import Plan, Victim


@dataclass(frozen=True, slots=True)
class Execution:
    """One run of a task, from its own record."""

    nonce: str
    number: int
    task_id: int
    attempt: int
    prepared: bool
    """The environment stood when it began."""
    started: int
    """CLOCK_MONOTONIC of this machine, ns, as every moment here."""
    ended: int | None
    """None: something ended it before it came to its end."""
    host: str = ""
    """Manager id."""


@dataclass(frozen=True, slots=True)
class Kill:
    victim: Victim
    at: int
    """ns"""
    done_before: int
    """Tasks that had come to an end, by the records, right before and right after."""
    done_after: int
    lease_live: bool
    unsent: int = 0
    """Rows of the outbox that a relay died with."""


@dataclass(frozen=True, slots=True)
class Result:
    """A row of ``task_result``."""

    task_id: int
    seq: int
    state: str
    attempt: int
    kind: str | None
    detail: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Failure:
    """A row of ``task_failures``."""

    task_id: int
    attempt: int
    kind: str


@dataclass(frozen=True, slots=True)
class Facts:
    plan: Plan
    submitted: tuple[int, ...]
    """``submitted[number]`` is the id that the SDK was given for the task."""
    executions: tuple[Execution, ...]
    kills: tuple[Kill, ...]
    results: tuple[Result, ...]
    failures: tuple[Failure, ...]
    counters: Mapping[str, int]
    """Of ``group_live``."""
    counted: Mapping[str, int]
    """The same by COUNT(*)."""
    group: Mapping[str, Any]
    """``state`` and ``result``."""
    hooks: tuple[str, ...]
    """What the hooks wrote into their own file, in order."""
    hook_runs: tuple[tuple[str, str], ...]
    """Kind and state of each row of ``hook_runs``, in order."""
    leftovers: Mapping[str, tuple[str, ...]]
    """What should not be there any more, by the kind of place it was found in."""
