"""Explains why a task group, a task or a host waits, in one line: the first of ordered rules over facts.

`show`, `watch`, `run` and Temporal's details show the same line as `explain`, which adds a line for each
host. ``eligibility.py`` decides why a host is not offered; this module adds what live leases are doing, and
summarises the hosts of a group.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal
from uuid import UUID

from mitosis.contracts.host_failures import HostFailureKind
from mitosis.contracts.lifecycle import (
    TASK_GROUP,
    EnvironmentState,
    HookState,
    LeaseState,
    TaskGroupResult,
    TaskGroupState,
)
from mitosis.scheduling.host_failures import FailedHost, HostFailure, after_failed_setups
from mitosis.scheduling.wording import hook_end, names, span
from mitosis.store.leases import eligibility
from mitosis.store.leases.capacity import progress_parameters
from mitosis.store.leases.eligibility import (
    CONDITIONS,
    GroupFacts,
    HostFacts,
    obstacles,
    plan_mismatch,
    with_debt,
)
from mitosis.store.leases.membership import missing_tags, not_a_member, would_be_refreshed
from mitosis.store.pg.database import Connection
from mitosis.store.pg.rows import fetch_all, fetch_one
from mitosis.store.pg.statements import load
from mitosis.store.store import Store

SQL = load("leases/reasons.sql")
WAITING_GROUP = "\n".join(
    ("WITH facts AS (", eligibility.GROUP_FACTS, SQL["one_group"], ")", SQL["group_details"])
)
WAITING_HOSTS = "\n".join(
    (
        "WITH facts AS (",
        eligibility.HOST_FACTS,
        SQL["hosts_of_group"],
        ")",
        SQL["host_details"],
    )
)
UNSENT_SECONDS = 3.0
"""An older message to Temporal is late: it is usually sent within milliseconds."""

_TO_TEAR_DOWN = (
    EnvironmentState.PREPARING,
    EnvironmentState.READY,
    EnvironmentState.TEARING_DOWN,
)

TaskOutcome = Literal["succeeded", "failed", "cancelled"]


@dataclass(frozen=True, slots=True)
class Reason:
    """The reason for the state of a group, a task or a host."""

    code: str
    """Stable, for programs."""
    line: str
    waits: bool = True
    """False: it runs, or it has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SetupRun:
    """The last run of a setup hook on a host."""

    state: HookState
    message: str | None
    exit_code: int | None
    signal: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingHost(HostFacts):
    """A host that has a role in the user group, is named for the group, or holds a lease for it."""

    alive_in_seconds: float | None
    """Until ``alive_until`` of its lease; None without a lease, and while it is offered."""
    lost_after_seconds: float
    """Silence after which it is lost: the setting of its lease's group, else that of the deployment."""
    environment: EnvironmentState | None
    """Of this group on it."""
    setup: SetupRun | None
    """Of this group on it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingGroup(GroupFacts):
    """A task group whose progress is explained."""

    task_group_id: UUID
    state: TaskGroupState
    settled: bool
    result: TaskGroupResult | None
    reason: str | None
    """Given with the verb that ended it."""
    total: int
    unfinished: int
    discarding: bool
    unsent_seconds: float | None
    """Age of the oldest message that Temporal has not received."""
    delayed_seconds: float | None
    """Until the next delayed attempt is due."""
    ends_if_setup_fails: bool
    """On every host that may serve it."""
    closes_in_seconds: float | None
    """Until it is closed for inactivity or at its deadline; None: by a verb only."""

    @property
    def ending(self) -> bool:
        """Whether it is terminal, or its unfinished tasks are being cancelled."""
        return self.state in TASK_GROUP.terminal or self.discarding


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """The facts about one group and its hosts."""

    group: WaitingGroup
    hosts: Sequence[WaitingHost]

    def holders(self) -> Sequence[WaitingHost]:
        """Return the hosts that hold a lease of the group."""
        return [host for host in self.hosts if _own_lease(host, self.group) is not None]


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingTask:
    """The facts about one task."""

    attempt: int
    result: TaskOutcome | None
    kind: str | None
    manager_name: str | None
    claimed: bool
    doubted: bool
    """It failed on a host that may be broken: its failure is not final yet (C-33)."""
    lost_count: int
    running_seconds: float | None
    delayed_seconds: float | None
    suspect: bool
    """Its host is not in contact."""
    silent_seconds: float | None
    alive_in_seconds: float | None
    before: int
    """Tasks that are claimed before it, up to a bound."""


async def read_waiting(connection: Connection, store: Store, group_number: int) -> Waiting | None:
    """Read the facts about one group; None if there is no such group. One or two round trips."""
    parameters = {
        "group_number": group_number,
        "hosts": 1,
        "quarantine_after": store.quarantine_after,
        **progress_parameters(store),
        "host_lost_after": store.host_lost_after.total_seconds(),
    }
    group = await fetch_one(connection, WaitingGroup, WAITING_GROUP, parameters)
    if group is None:
        return None
    hosts = []
    if not group.settled:
        hosts = await fetch_all(connection, WaitingHost, WAITING_HOSTS, parameters)
    return Waiting(group=group, hosts=hosts)


def waiting_for(facts: Waiting) -> str | None:
    """Return the line of :func:`why`; None if the group does not wait."""
    reason = why(facts)
    return reason.line if reason.waits else None


def why(facts: Waiting) -> Reason:
    """Return the reason for the group's state: the first rule that holds."""
    group = facts.group
    if group.settled:
        given = f" ({group.reason})" if group.reason else ""
        return Reason("finished", f"it has ended: {group.result or group.state}{given}", False)
    if group.ending:
        return _ending(facts) or Reason("settling", "being settled")
    if group.unfinished == 0:
        return _drained(group)
    return _held(facts.holders(), group) or _not_offered(facts)


def host_reason(host: WaitingHost, group: WaitingGroup) -> Reason:
    """Return what one host does for the group, or the first condition that keeps it from an offer."""
    if _own_lease(host, group) is not None:
        held = _held([host], group)
        assert held is not None  # noqa: S101 - it has a lease
        return held
    # The group's own line covers conditions of the group; this one is about the host.
    for condition in obstacles(host, group):
        if condition.of_group is None:
            return Reason(condition.code, condition.sentence(host, group))
    return Reason("free", "is free", False)


def task_reason(task: WaitingTask, group: Reason) -> Reason:
    """Return the reason for a task's state; ``group`` is the reason of its group."""
    host, attempt = task.manager_name, f"attempt {task.attempt}"
    if task.result is not None:
        return _ended_task(task)
    if task.doubted:
        line = (
            f"it failed on {host}, {attempt}; this is final once a task succeeds there, or fails on"
            " another host too"
        )
        return Reason("doubted", line)
    if task.claimed and task.suspect:
        return Reason(
            "suspect", _silent_line(f"{host}", task.silent_seconds, task.alive_in_seconds)
        )
    if task.running_seconds is not None:
        line = f"it has been running on {host} for {span(task.running_seconds)}, {attempt}"
        return Reason("working", line, False)
    if task.claimed:
        return Reason("claimed", f"{host} has it and starts it when a worker is free", False)
    return _unclaimed_task(task, group)


def _ended_task(task: WaitingTask) -> Reason:
    ended = {
        "succeeded": "it has succeeded",
        "failed": "it has failed",
        "cancelled": "it was cancelled",
    }
    how = f", {task.kind.replace('_', ' ')}" if task.kind else ""
    where = f" on {task.manager_name}" if task.manager_name else ""
    line = f"{ended[task.result or 'cancelled']}{where}, attempt {task.attempt}{how}"
    return Reason("finished", line, False)


def _unclaimed_task(task: WaitingTask, group: Reason) -> Reason:
    if (task.delayed_seconds or 0.0) > 0:
        line = f"attempt {task.attempt + 1} is due in {span(task.delayed_seconds)}"
        return Reason("delayed", line)
    if group.waits:
        return group
    if task.lost_count > 1:
        line = "it ran on hosts that were lost, and waits until it can run alone on a host"
        return Reason("alone", line)
    if task.before == 0:
        return Reason("queued", f"it is next; {group.line}")
    others = "1 other task is" if task.before == 1 else f"{task.before} other tasks are"
    return Reason("queued", f"{others} before it; {group.line}")


def _own_lease(host: HostFacts, group: GroupFacts) -> LeaseState | None:
    own = host.lease is not None and host.lease.group == group.number
    return host.lease.state if own and host.lease is not None else None


def _ending(facts: Waiting) -> Reason | None:
    group, hosts = facts.group, facts.hosts
    if group.unfinished and facts.holders():
        return Reason("ending_tasks", "running tasks are being ended")
    tearing_down = any(host.environment is EnvironmentState.TEARING_DOWN for host in hosts)
    if not tearing_down and (unsent := _unsent(group)):
        return unsent
    if group.unfinished:
        return Reason("discarding", "unclaimed tasks are being cancelled")
    cleaning = [
        host
        for host in hosts
        if host.environment in _TO_TEAR_DOWN
        or (host.environment is EnvironmentState.OWED and not host.offline)
    ]
    if not cleaning:
        return None
    line = with_debt(f"cleanup on {names([host.name for host in cleaning])}", *cleaning)
    silent = [host for host in cleaning if not host.in_contact]
    if silent:
        after = max(host.lost_after_seconds for host in silent)
        seen = names([_last_seen(host) for host in silent])
        line = (
            f"{line}, not in contact: {seen}; their teardown is owed after {span(after)} of silence"
        )
    return Reason("cleanup", line)


def _unsent(group: WaitingGroup) -> Reason | None:
    """Return a reason if the messages in the outbox are late: Temporal has not received them."""
    age = group.unsent_seconds or 0.0
    if age < UNSENT_SECONDS:
        return None
    line = f"waiting for infrastructure: Temporal has not been reached for {span(age)}"
    return Reason("infrastructure", line)


def _drained(group: WaitingGroup) -> Reason:
    if group.state is TaskGroupState.CLOSED:
        line = "all tasks have ended; being completed"
        return _unsent(group) or Reason("completing", line)
    if group.total == 0:
        return Reason("empty", "no task has been submitted yet")
    return Reason("open", "all tasks have ended; waiting for more tasks or for close")


def _held(holders: Sequence[WaitingHost], group: WaitingGroup) -> Reason | None:
    """Return what the leases of the group do; None if it has no lease."""
    taken = [host for host in holders if _own_lease(host, group) is LeaseState.ACTIVE]
    ready = [host for host in taken if host.environment is EnvironmentState.READY]
    working = [host.name for host in ready if host.in_contact]
    if working:
        return Reason("working", f"tasks run on {names(working)}", False)
    if ready:
        return Reason("suspect", _silent_host(ready[0]))
    current = [host for host in holders if _own_lease(host, group) is not LeaseState.ENDING]
    for host in current:
        if host.setup is not None and host.setup.state is HookState.WAITING:
            line = f"{host.name} waits for infrastructure: {_end_of(host.setup)}"
            return Reason("infrastructure", line)
    if current:
        return _beginning(current[0], group)
    if holders:
        line = f"{names([host.name for host in holders])} finishes its tasks and leaves"
        return Reason("leaving", line)
    return None


def _beginning(host: WaitingHost, group: WaitingGroup) -> Reason:
    if _own_lease(host, group) is LeaseState.OFFERED:
        return Reason("offered", f"offered to {host.name}")
    if not host.in_contact:
        return Reason("suspect", _silent_host(host))
    return Reason("setup", f"setup on {host.name}")


def _silent_host(host: WaitingHost) -> str:
    return _silent_line(host.name, host.silent_seconds, host.alive_in_seconds)


def _silent_line(name: str, silent: float | None, alive_in: float | None) -> str:
    line = f"{name} has not been in contact for {span(silent)}"
    if alive_in is None:
        return line
    return f"{line}; its tasks go to other hosts in {span(max(0.0, alive_in))} unless it comes back"


# --- no lease: the conditions over all hosts ----------------------------------------------------------


def _not_offered(facts: Waiting) -> Reason:
    """Return the reason of the first condition that rules out the last remaining host."""
    group, left = facts.group, list(facts.hosts)
    for condition in CONDITIONS:
        if condition.of_group is not None:
            if not condition.of_group(group):
                return NONE_LEFT[condition.code](left, group)
            continue
        passing = [host for host in left if condition.holds(host, group)]
        if not passing:
            return NONE_LEFT[condition.code](left, group)
        left = passing
    return _unsent(group) or Reason("assigning", "about to be offered to a host")


def _no_work(_: Sequence[WaitingHost], group: WaitingGroup) -> Reason:
    if group.delayed_seconds is None:
        return Reason("no_work", "no task is ready")
    return Reason("delayed", f"the next attempt is due in {max(group.delayed_seconds, 0.0):.0f} s")


def _no_member(hosts: Sequence[WaitingHost], group: WaitingGroup) -> Reason:
    """Say who could become a member; else name the tags, and those that the closest host lacks."""
    if group.assignment_method == "user_specified":
        line = "it runs only on hosts that a user names for it, and none is named"
        return Reason("none_named", line)
    for could in (
        lambda host: would_be_refreshed(host, group),
        lambda host: host.number in group.removed,
    ):
        if (first := next(filter(could, hosts), None)) is not None:
            return Reason(
                "member", f"no host is a member: {first.name} {not_a_member(first, group)}"
            )
    line = (
        f"no host has {group.member_tag_match} of the tags {', '.join(sorted(group.member_tags))}"
    )
    if group.member_tag_match == "all":
        closest = min(hosts, key=lambda host: len(missing_tags(host, group)))
        line = f"{line}: {closest.name} lacks {', '.join(missing_tags(closest, group))}"
    return Reason("tags", line)


def _no_host_fits(hosts: Sequence[WaitingHost], group: WaitingGroup) -> Reason:
    first = hosts[0]
    mismatch = plan_mismatch(group.plan, first.cores or ())
    return Reason("misfit", f"{first.name} cannot serve it: {mismatch}")


def _setup_failed(hosts: Sequence[WaitingHost], group: WaitingGroup) -> Reason:
    failures = [(host, host.blocking(HostFailureKind.SETUP_FAILED, group.number)) for host in hosts]
    failed = [FailedHost(host.name, failure.reason) for host, failure in failures if failure]
    until, ends = group.closes_in_seconds, group.ends_if_setup_fails
    return Reason("setup_failed", after_failed_setups(failed, group.name, until, ends=ends))


def _tried_in(failure: HostFailure | None) -> float:
    return (failure.tried_in_seconds if failure is not None else None) or 0.0


def _all_failed(kind: HostFailureKind) -> "NoneLeft":
    """Return the reason of a group if failures of this kind keep all remaining hosts away."""

    def reason(hosts: Sequence[WaitingHost], group: WaitingGroup) -> Reason:
        of = None if kind is HostFailureKind.UNREACHABLE else group.number
        failures = [(host, host.blocking(kind, of)) for host in hosts]
        first, failure = min(failures, key=lambda pair: _tried_in(pair[1]))
        if failure is None:
            return Reason(kind.value, f"{first.name} is tried again now")
        others = [host for host in hosts if host is not first]
        also = f" (also: {_host_names(others)})" if others else ""
        return Reason(kind.value, f"{first.name} {failure.sentence(first.name)}{also}")

    return reason


def _no_contact(hosts: Sequence[WaitingHost], _: WaitingGroup) -> Reason:
    seen = names([_last_seen(host) for host in hosts])
    return Reason("no_contact", f"no host that may run it is in contact: {seen}")


def _draining(hosts: Sequence[WaitingHost], _: WaitingGroup) -> Reason:
    return Reason("draining", f"every host that may run it is draining: {_host_names(hosts)}")


def _busy(hosts: Sequence[WaitingHost], group: WaitingGroup) -> Reason:
    leases = [host.lease for host in hosts if host.lease is not None]
    higher = all(lease.priority > group.priority for lease in leases)
    whom = names(sorted({lease.group_name for lease in leases}))
    others = "task groups of higher priority" if higher else "other task groups"
    return Reason("busy", f"{_host_names(hosts)} busy with {others}: {whom}")


def _host_names(hosts: Sequence[WaitingHost]) -> str:
    return names([host.name for host in hosts])


NoneLeft = Callable[[Sequence[WaitingHost], WaitingGroup], Reason]
NONE_LEFT: Mapping[str, NoneLeft] = {
    "ended": lambda *_: Reason("settling", "being settled"),
    "no_work": _no_work,
    "enough": lambda *_: Reason("enough", "it has as many hosts as it can use"),
    "no_role": lambda _, group: Reason(
        "no_manager", f"no host may serve user group {group.user_group_name}; register one there"
    ),
    "member": _no_member,
    "misfit": _no_host_fits,
    "setup_failed": _setup_failed,
    "no_contact": _no_contact,
    **{
        kind.value: _all_failed(kind)
        for kind in HostFailureKind
        if kind is not HostFailureKind.SETUP_FAILED
    },
    "draining": _draining,
    "busy": _busy,
    "cleanup": lambda hosts, _: Reason(
        "cleanup", with_debt(f"cleanup on {_host_names(hosts)}", *hosts)
    ),
    "unclean": lambda hosts, _: Reason(
        "unclean",
        with_debt(f"cleanup after another task group on {_host_names(hosts)}", *hosts),
    ),
}
"""By the code of a condition: the reason of a group if it holds for none of the remaining hosts."""


def _last_seen(host: WaitingHost) -> str:
    if host.silent_seconds is None:
        return host.name
    return f"{host.name} (last seen {span(host.silent_seconds)} ago)"


def _end_of(setup: SetupRun) -> str:
    return hook_end(setup.message, setup.exit_code, setup.signal)
