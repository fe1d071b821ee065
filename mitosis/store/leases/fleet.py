"""The facts of decisions as PostgreSQL has them: rows of hosts with their leases, and of task groups.

Each row converts itself to the facts of ``mitosis.scheduling``; nothing is decided here.
"""

from dataclasses import dataclass
from typing import Literal, LiteralString
from uuid import UUID

from mitosis.contracts.allocation import CpuBinding
from mitosis.contracts.host_failures import HostFailureKind
from mitosis.contracts.lease_settings import LeaseSettings, LeaseTerms, terms_of
from mitosis.contracts.lifecycle import LeaseState
from mitosis.scheduling.facts import FOREVER, Failure, Freed, Group, Host, Lease, Progress, Work
from mitosis.scheduling.host_sets import Hosts
from mitosis.store.leases.capacity import PROGRESS
from mitosis.store.leases.membership import FormerTags, TagMatch
from mitosis.store.pg.statements import load

SQL = load("leases/fleet.sql")
ROUNDING_SECONDS = 5e-7
"""Times of PostgreSQL are microseconds; a difference of two of them as numbers is less exact."""
EMPTY_SINCE = SQL["empty_since"]


def with_failures(statement: LiteralString) -> LiteralString:
    """Fill in which rows of ``host_failures`` count, and the kind that is shown."""
    kind, counts = SQL["failure_kind"], SQL["failure_counts"]
    return statement.replace("$kind$", kind).replace("$counts$", counts)


def hosts_statement(rows: LiteralString, limit: LiteralString = "") -> LiteralString:
    """Return the statement that reads hosts: ``rows`` selects them, ``limit`` what is aggregated."""
    statement = with_failures(SQL["hosts"]).replace("$progress$", PROGRESS)
    statement = statement.replace("$empty_since$", EMPTY_SINCE)
    return statement.replace("$of_hosts$", limit) + "\n" + rows


def groups_statement(
    rows: LiteralString,
    of_groups: LiteralString = "",
    of_members: LiteralString = "",
    source: LiteralString = "task_groups AS g",
) -> LiteralString:
    """Return the statement that reads task groups.

    ``source`` and ``rows`` select them, the others what is aggregated.
    """
    statement = SQL["groups"].replace("$of_groups$", of_groups).replace("$of_members$", of_members)
    return statement.replace("$source$", source) + "\n" + rows


CLOCK = SQL["clock"]
THESE_HOSTS = SQL["these_hosts"]
HOSTS_IN_CONTACT = hosts_statement(SQL["hosts_in_contact"])
HOSTS_BY_NUMBER = hosts_statement(SQL["hosts_by_number"], THESE_HOSTS)
GROUPS_OF_ROUND = groups_statement(
    SQL["groups_of_round"], of_members=SQL["members_of_round"], source=SQL["source_of_round"]
).replace("$of_round$", SQL["of_round"])
ONE_GROUP = groups_statement(SQL["one_group"], SQL["these_groups"], SQL["these_members"])


@dataclass(frozen=True, slots=True)
class FailureRow:
    """What a host failed at for a task group."""

    group: int
    group_name: str
    kind: HostFailureKind
    failures: int
    reason: str
    next_at: float | None

    @property
    def fact(self) -> Failure:
        """Return it as decisions read it."""
        return Failure(
            group=self.group,
            group_name=self.group_name,
            kind=self.kind,
            failures=self.failures,
            reason=self.reason,
            next_at=self.next_at,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class HostRow:
    """A host, and its lease that has not ended. Times are seconds since 1970."""

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
    last_contact_at: float | None
    serves: frozenset[int]
    """User groups in which it has a write role."""
    warm: frozenset[int]
    """Groups whose environment is ready on it."""
    unclean: frozenset[int]
    """Groups whose environment on it is unfinished or must be torn down."""
    failures: tuple[FailureRow, ...]
    moved_at: tuple[float, ...]
    freed_for: tuple[Freed, ...]
    lease_number: int | None
    """The epoch; None: it has no lease, and the other facts about one say nothing."""
    lease_group: int | None
    lease_state: LeaseState | None
    lease_draining: bool | None
    """It claims nothing more and ends when its tasks have ended."""
    progress: Progress | None
    """None: it is ENDING."""
    taken_at: float | None
    affinity_until: float | None
    renewed: bool
    empty_since: float | None
    """Since then no task was claimed under it, and none was claimable for it when it was last looked at."""
    lease_for: int | None
    contested_at: float | None
    holder_name: str | None
    """Of the task group that has the lease; None: it has been deleted."""
    holder_user_group: int | None
    holder_priority: int | None
    debt: str | None = None
    """Why a teardown that it owes cannot begin. Read for texts only."""

    def fact(self, now: float, suspect_after_seconds: float) -> Host:
        """Return the host as decisions read it."""
        contact = self.last_contact_at
        silent = contact is None or now - contact >= suspect_after_seconds - ROUNDING_SECONDS
        return Host(
            number=self.number,
            name=self.name,
            cores=self.cores,
            tags=self.tags,
            serves=self.serves,
            in_contact=not (self.offline or silent),
            last_contact_at=contact,
            draining=self.draining,
            warm=self.warm,
            unclean=self.unclean - {self.lease_group},
            failures=tuple(failure.fact for failure in self.failures),
            moved_at=self.moved_at,
            freed_for=self.freed_for,
            debt=self.debt,
        )

    def lease(self, *, has_ready: bool) -> Lease | None:
        """Return its lease; ``has_ready``: a task is claimable for it, so it is not idle (C-04)."""
        if self.lease_number is None or self.lease_group is None or self.lease_state is None:
            return None
        state = self.lease_state
        if state is LeaseState.ACTIVE and self.lease_draining:
            state = LeaseState.ENDING
        progress = self.progress or Progress.FULL
        if self.empty_since is not None and not has_ready:
            progress = (
                Progress.ROOM
            )  # it would claim, or so it seems until there is something to claim
        return Lease(
            number=self.lease_number,
            group=self.lease_group,
            host=self.number,
            state=state,
            progress=progress,
            taken_at=self.taken_at or 0.0,
            affinity_until=FOREVER if self.affinity_until is None else self.affinity_until,
            renewed=self.renewed,
            idle_since=None if has_ready else self.empty_since,
            for_group=self.lease_for,
            ending_since=self.contested_at or 0.0,
        )

    def holder(self) -> Group | None:
        """Return the task group that has its lease, as far as the row knows it."""
        if self.lease_group is None:
            return None
        return Group(
            number=self.lease_group,
            name=self.holder_name or "a deleted task group",
            user_group=self.holder_user_group or 0,
            priority=self.holder_priority or 0,
            goes_on=False,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRow:
    """A task group, its tasks, what was measured, and its own settings."""

    number: int
    task_group_id: UUID
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
    workers: int
    binding: CpuBinding | None
    created_at: float
    goes_on: bool
    """OPEN or CLOSED, and not being cancelled."""
    refuses_tasks: bool
    """CLOSED, and a submit does not reopen it."""
    unfinished: int
    ready: int
    """Tasks that can be claimed now, counted up to a bound."""
    ready_counted_to: int
    """The bound."""
    delayed_until: float | None
    """Of a group without leases."""
    tasks_measured: int
    task_seconds: float
    setup_seconds: float
    teardown_seconds: float
    lease_duration: float | None
    longest_lease: float | None
    idle_threshold: float | None
    longest_idle: float | None
    preemption_grace: float | None
    hostless_since: float | None = None
    """Since when it has had claimable tasks and no host, as the last round noted."""
    changed_by: int = 0
    """The transaction that changed its state or counters last."""

    def fact(self, members: Hosts, removed: Hosts, deployment: LeaseTerms) -> Group:
        """Return the task group as decisions read it."""
        own = {name: getattr(self, name) for name in LeaseSettings.model_fields}
        has_own = any(value is not None for value in own.values())
        return Group(
            number=self.number,
            name=self.name,
            user_group=self.user_group,
            user_group_name=self.user_group_name,
            priority=self.priority,
            created_at=self.created_at,
            goes_on=self.goes_on,
            refuses_tasks=self.refuses_tasks,
            assignment_method=self.assignment_method,
            tags=self.tags,
            tag_match=self.tag_match,
            members=members,
            removed=removed,
            workers=self.workers,
            binding=self.binding,
            max_managers=self.max_managers,
            leases=terms_of(own, deployment) if has_own else None,
        )

    @property
    def work(self) -> Work:
        """Return its tasks and what was measured."""
        return Work(
            ready=self.ready,
            more_ready=0 < self.ready_counted_to <= self.ready,
            unfinished=self.unfinished,
            delayed_until=self.delayed_until,
            hostless_since=self.hostless_since,
            tasks_measured=self.tasks_measured,
            task_seconds=self.task_seconds,
            setup_seconds=self.setup_seconds,
            teardown_seconds=self.teardown_seconds,
        )
