"""The one list of conditions for a host to be offered to a task group.

The assignment round offers a host when every condition holds. `explain` reports the first one that does
not hold, for a host and for the task group as a whole. A dry run can report all of them. The order is the
order of repair: a condition that a clock or another group changes by itself comes late.

PostgreSQL supplies facts and decides nothing, with two exceptions. The statements of the round select only
the hosts and groups for which the conditions marked ``prefiltered`` hold, because the others can be many.
And an offer is written only if role and membership still hold. Tests compare both with these conditions.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, LiteralString
from uuid import UUID

from mitosis.contracts.allocation import WorkerAllocationPlan
from mitosis.contracts.host_failures import HostFailureKind
from mitosis.contracts.lifecycle import LeaseState
from mitosis.scheduling.binding import binding_mismatch
from mitosis.scheduling.host_failures import HostFailure
from mitosis.scheduling.wording import span
from mitosis.store.leases.membership import FormerTags, TagMatch, is_member, not_a_member
from mitosis.store.pg.statements import load

SQL = load("leases/eligibility.sql")


def with_failures(statement: LiteralString) -> LiteralString:
    """Fill in which rows of ``host_failures`` count, and the kind that is shown."""
    kind, counts = SQL["failure_kind"], SQL["failure_counts"]
    return statement.replace("$kind$", kind).replace("$counts$", counts)


HOST_FACTS = with_failures(SQL["host_facts"])
GROUP_FACTS = SQL["group_facts"].replace("{capacity}", load("leases/capacity.sql")["capacity"])
TASKS_PER_WORKER = 2
"""A group wants one more host per this many ready tasks per worker; ten tasks must not prepare 100 hosts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLease:
    """The lease of a host that has not ended."""

    epoch: int
    state: LeaseState
    group: int
    group_name: str
    priority: int
    """Of the task group."""
    has_work: bool
    """ACTIVE, and a task is claimable in its group or claimed under its epoch (C-04)."""
    idle_seconds: float | None
    """Since a renewal last saw such a task, or since the lease was taken; None while it is offered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFacts:
    """The facts about one host. Task groups and user groups are numbers."""

    number: int
    manager_id: UUID
    name: str
    tags: frozenset[str]
    former_tags: tuple[FormerTags, ...]
    """Oldest first, as far back as a task group was matched by them."""
    cores: tuple[int, ...] | None
    """None: its agent has never said hello."""
    draining: bool
    offline: bool
    """Lost, ended in order, or never started."""
    silent_seconds: float | None
    """Since the last contact; None: there was none."""
    suspect_after_seconds: float
    """Silence after which a host is offered nothing: the setting of the deployment."""
    serves: frozenset[int]
    """User groups in which it has a write role."""
    warm: frozenset[int]
    """Groups whose environment is ready on it."""
    unclean: frozenset[int]
    """Groups whose environment on it is unfinished or must be torn down."""
    failures: tuple[HostFailure, ...]
    """What it failed at for task groups (P7), as far as it counts."""
    lease: HostLease | None
    debt: str | None = None
    """Why a teardown that it owes cannot begin, and when it is tried again."""

    @property
    def in_contact(self) -> bool:
        """Whether its contact is recent enough for an offer; otherwise it is at least suspect (P4)."""
        silent = self.silent_seconds
        return not self.offline and silent is not None and silent < self.suspect_after_seconds

    def blocking(self, kind: HostFailureKind, group: int | None) -> HostFailure | None:
        """Return the failure of this kind that keeps the host from a group; from all if None."""
        return next(
            (
                failure
                for failure in self.failures
                if failure.kind is kind and group in (None, failure.group) and failure.blocks
            ),
            None,
        )

    def has_failed(self, group: int) -> bool:
        """Return whether it failed at anything for the group, or did not take an offer of any."""
        return any(
            failure.group == group or failure.kind is HostFailureKind.UNREACHABLE
            for failure in self.failures
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFacts:
    """The facts about one task group."""

    number: int
    name: str
    priority: int
    user_group: int
    user_group_name: str
    tags: frozenset[str]
    tag_match: TagMatch
    member_tags: frozenset[str]
    """Its tags at the last refresh, and below how they matched: they decide who is a member (C-32)."""
    member_tag_match: TagMatch
    member_version: int
    """Of the tags of hosts at the last refresh."""
    assignment_method: Literal["tag_matched", "user_specified"]
    added: frozenset[int]
    """Hosts that a user added to the group."""
    removed: frozenset[int]
    """Hosts that a user removed from it."""
    max_managers: int | None
    plan: WorkerAllocationPlan
    goes_on: bool
    """OPEN or CLOSED, and not being cancelled."""
    live_leases: int
    """Every lease that has not ended: what ``max_managers`` limits."""
    capacity: int
    """Leases that will claim its ready tasks, offers and setups in progress included; not those that
    are ending, out of contact, without progress, or busy with long tasks in every worker."""
    ready: int
    """Tasks that can be claimed now, counted up to a bound."""

    @property
    def wanted_leases(self) -> int:
        """How many leases the group should have in all: one more if a task is ready and none has room."""
        if self.ready == 0:
            return 0
        by_work = -(-self.ready // (TASKS_PER_WORKER * self.plan.worker_count))
        by_work += self.live_leases - self.capacity
        return by_work if self.max_managers is None else min(by_work, self.max_managers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One condition. Its predicate reads a group, a host, or both: exactly one of the three is given."""

    code: str
    """Stable, for programs."""
    sentence: Callable[[HostFacts, GroupFacts], str]
    """The obstacle if the condition does not hold; printed after the name of the host."""
    of_group: Callable[[GroupFacts], bool] | None = None
    of_host: Callable[[HostFacts], bool] | None = None
    of_pair: Callable[[HostFacts, GroupFacts], bool] | None = None
    prefiltered: bool = False
    """The statements of the round select only facts for which it holds."""

    def holds(self, host: HostFacts, group: GroupFacts) -> bool:
        """Return whether the condition holds for this host and group."""
        if self.of_group is not None:
            return self.of_group(group)
        if self.of_host is not None:
            return self.of_host(host)
        return self.of_pair is None or self.of_pair(host, group)


def plan_mismatch(plan: WorkerAllocationPlan, cores: Sequence[int]) -> str | None:
    """Return why the workers of ``plan`` cannot be bound to ``cores``; None if they can."""
    return binding_mismatch(plan.worker_count, plan.cpu_binding, tuple(cores))


def _plan_fits(host: HostFacts, group: GroupFacts) -> bool:
    # A host that has never said hello has no known cores; the condition no_contact covers it.
    return host.cores is None or plan_mismatch(group.plan, host.cores) is None


def _has_not_failed(kind: HostFailureKind) -> Condition:
    """Return the condition that no failure of this kind keeps the host from the group."""

    def text(host: HostFacts, group: GroupFacts) -> str:
        failure = host.blocking(kind, group.number)
        return "is tried again" if failure is None else failure.sentence(host.name)

    return Condition(
        code=kind.value,
        of_pair=lambda host, group: host.blocking(kind, group.number) is None,
        sentence=text,
    )


def _unreachable(host: HostFacts, _: GroupFacts) -> str:
    failure = host.blocking(HostFailureKind.UNREACHABLE, None)
    return "can be reached" if failure is None else failure.sentence(host.name)


def _away(host: HostFacts, _: GroupFacts) -> str:
    if host.silent_seconds is None:
        return "has never been in contact"
    return f"was last seen {span(host.silent_seconds)} ago"


def _busy(host: HostFacts, group: GroupFacts) -> str:
    if host.lease is None:
        return "is free"
    higher = " of higher priority" if host.lease.priority > group.priority else ""
    return f"is busy with another task group{higher}: {host.lease.group_name}"


def with_debt(line: str, *hosts: HostFacts) -> str:
    """Add why the teardown of one of these hosts cannot begin."""
    return f"{line}: {debt}" if (debt := next((h.debt for h in hosts if h.debt), None)) else line


CONDITIONS: Sequence[Condition] = (
    Condition(
        code="ended",
        of_group=lambda group: group.goes_on,
        sentence=lambda *_: "is not needed: the task group has ended",
        prefiltered=True,
    ),
    Condition(
        code="no_work",
        of_group=lambda group: group.ready > 0,
        sentence=lambda *_: "is not needed: no task is ready",
        prefiltered=True,
    ),
    Condition(
        code="enough",
        of_group=lambda group: group.live_leases < group.wanted_leases,
        sentence=lambda *_: "is not needed: the task group has as many hosts as it can use",
    ),
    Condition(
        code="no_role",
        of_pair=lambda host, group: group.user_group in host.serves,
        sentence=lambda _, group: f"has no write role in user group {group.user_group_name}",
    ),
    Condition(code="member", of_pair=is_member, sentence=not_a_member),
    Condition(
        code="misfit",
        of_pair=_plan_fits,
        sentence=lambda host, group: (
            f"cannot serve it: {plan_mismatch(group.plan, host.cores or ())}"
        ),
    ),
    _has_not_failed(HostFailureKind.SETUP_FAILED),
    _has_not_failed(HostFailureKind.QUARANTINED),
    Condition(
        code="no_contact",
        of_host=lambda host: host.in_contact,
        sentence=_away,
        prefiltered=True,
    ),
    Condition(
        code=HostFailureKind.UNREACHABLE.value,
        of_host=lambda host: host.blocking(HostFailureKind.UNREACHABLE, None) is None,
        sentence=_unreachable,
    ),
    _has_not_failed(HostFailureKind.WORKERS_NOT_STARTED),
    _has_not_failed(HostFailureKind.NO_PROGRESS),
    _has_not_failed(HostFailureKind.SUSPECTED),
    Condition(
        code="draining",
        of_host=lambda host: not host.draining,
        sentence=lambda *_: "is draining",
    ),
    Condition(
        code="busy",
        of_host=lambda host: host.lease is None,
        sentence=_busy,
    ),
    Condition(
        code="cleanup",
        of_pair=lambda host, group: group.number not in host.unclean,
        sentence=lambda host, _: with_debt("cleans up after this task group", host),
    ),
    Condition(
        code="unclean",
        of_host=lambda host: not host.unclean,
        sentence=lambda host, _: with_debt("cleans up after another task group", host),
    ),
)
"""Every condition, in the order in which they are reported."""

CONTEST_CONDITIONS: Sequence[Condition] = tuple(
    condition for condition in CONDITIONS if condition.code not in {"busy", "cleanup", "unclean"}
)
"""The conditions for taking a host from the group that holds it.

The others will hold after the end of its lease and its teardowns.
"""


def obstacles(host: HostFacts, group: GroupFacts) -> Iterator[Condition]:
    """Yield the conditions that do not hold, in order; none: the round may offer the host."""
    return (condition for condition in CONDITIONS if not condition.holds(host, group))
