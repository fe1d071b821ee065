"""What is known of a campaign after its end: plain values for the judge."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.chaos.facts import Execution, Failure, Result
from tests.chaos.mixed.plan import MixedPlan, PlannedGroup, Trouble, Verb


@dataclass(frozen=True, slots=True)
class HookLine:
    """One line that a hook has written."""

    began: bool
    """At its begin, or at its end."""
    kind: str
    """``setup`` or ``teardown``."""
    host: str
    """Manager id."""
    at: int
    """CLOCK_MONOTONIC, ns, as every moment here."""


@dataclass(frozen=True, slots=True)
class Rows:
    """What PostgreSQL has of one settled group."""

    results: tuple[Result, ...]
    failures: tuple[Failure, ...]
    counters: Mapping[str, int]
    """Of ``group_live``."""
    counted: Mapping[str, int]
    """The same by COUNT(*)."""
    state: Mapping[str, Any]
    """``state`` and ``result``."""
    failed_hooks: tuple[tuple[str, str, int], ...]
    """Kind, manager id and moment of each run that failed."""


@dataclass(frozen=True, slots=True)
class GroupFacts:
    plan: PlannedGroup
    number: int
    submitted: tuple[int, ...]
    """``submitted[number]`` is the id that the SDK was given for the task."""
    verb_at: int | None
    """When the verb was answered."""
    refused: tuple[str, ...]
    """Codes of the refusals of the verbs that must be refused."""
    settled_at: int
    """When that was seen."""
    rows: Rows
    """Before its deletion, or at the end."""
    deleted_at: int | None
    executions: tuple[Execution, ...] = ()
    hooks: tuple[HookLine, ...] = ()
    rows_left: Mapping[str, int] | None = None
    """Of a deleted group: rows by table, at the end."""

    @property
    def name(self) -> str:
        return f"group {self.plan.number} ({self.plan.verb}, {self.plan.moment})"


@dataclass(frozen=True, slots=True)
class Disturbance:
    """Something that happened to a host, or to a server (``host`` is empty)."""

    trouble: Trouble | Verb | str
    host: str
    """Manager id."""
    began: int
    ended: int


@dataclass(frozen=True, slots=True)
class Revocation:
    """A token that was revoked while its host had reports to deliver."""

    host: str
    refused_from: int
    """From then on no report was taken."""
    killed_at: int
    back_at: int
    status: int | None
    """Exit status of the agent that was refused."""
    journal_before: bytes
    journal_after: bytes
    """The records of the file, when the agent was killed, and after the refused one."""


@dataclass(frozen=True, slots=True)
class Idle:
    """Claimable work of a group without a host, beside a usable host without a lease."""

    group: int
    host: str
    began: int
    ended: int


@dataclass(frozen=True, slots=True)
class MixedFacts:
    plan: MixedPlan
    groups: tuple[GroupFacts, ...]
    disturbances: tuple[Disturbance, ...]
    revocations: tuple[Revocation, ...]
    exits: tuple[tuple[str, int], ...]
    """Manager id and status of agents that ended by themselves."""
    idle: tuple[Idle, ...]
    histories: Mapping[str, int]
    """Workflow → events of its longest run."""
    leftovers: Mapping[str, tuple[str, ...]]
