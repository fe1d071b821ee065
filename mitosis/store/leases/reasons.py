"""Explains why a task group, a task or a host waits, in one line: the first of ordered rules over facts.

`show`, `watch`, `run` and Temporal's details show the same line as `explain`, which adds a line for each
host. ``mitosis.scheduling.predicates`` decides why a host is not offered, ``no_host_reasons`` what that means
for the group; this module adds what live leases are doing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from mitosis.contracts.host_failures import HostFailureKind
from mitosis.contracts.lifecycle import EnvironmentState, HookState, LeaseState, TaskGroupState
from mitosis.scheduling.predicates import Scope, obstacles
from mitosis.scheduling.sentences import failure
from mitosis.scheduling.wording import hook_end, names, span
from mitosis.store.leases.no_host_reasons import (
    Reason,
    host_names,
    last_seen,
    no_host_reason,
    with_debt,
)
from mitosis.store.leases.service_reasons import ending_reason, service_reason
from mitosis.store.leases.waiting import SetupRun, Waiting, WaitingGroup, WaitingHost

UNSENT_SECONDS = 3.0
"""An older message to Temporal is late: it is usually sent within milliseconds."""

IDLE = Reason("open", "has nothing to do until more tasks are submitted", False)
"""Of a host whose lease would begin a task at once."""

_TO_TEAR_DOWN = (
    EnvironmentState.PREPARING,
    EnvironmentState.READY,
    EnvironmentState.TEARING_DOWN,
)

TaskOutcome = Literal["succeeded", "failed", "cancelled"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingTask:
    """The facts about one task."""

    attempt: int
    result: TaskOutcome | None
    kind: str | None
    manager_name: str | None
    claimed: bool
    waits_for: int | None = None
    """How many tasks have to succeed before it; None: it is not blocked."""
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


@dataclass(frozen=True, slots=True)
class AwaitedTask:
    """An unfinished task that another one waits for."""

    number: int
    state: str


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
    if facts.coverage is not None:
        return service_reason(facts.coverage) or _delayed(group)
    return _held(facts.holders(), facts) or _on_its_way(facts) or _not_offered(facts)


def host_reason(host: WaitingHost, facts: Waiting) -> Reason:
    """Return what one host does for the group, or the first condition that keeps it from an offer."""
    if facts.lease_state(host) is not None:
        held = _held([host], facts)
        assert held is not None  # noqa: S101 - it has a lease
        if held.code == "working" and facts.group.unfinished == 0:
            return IDLE
        return held
    # The group's own line covers conditions of the group; this one is about the host.
    moment, group, state = facts.moment, facts.group_state, facts.host_state(host)
    for predicate in obstacles(moment, group, state):
        if predicate.scope is not Scope.GROUP:
            return Reason(predicate.code, predicate.sentence(moment, group, state))
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


def blocked_reason(count: int, awaited: Sequence[AwaitedTask]) -> Reason:
    """Return the reason for a task that waits for ``count`` others, of which the first few are given."""
    what = "1 task" if count == 1 else f"{count} tasks"
    named = ", ".join(f"{one.number} is {one.state}" for one in awaited)
    more = ", …" if count > len(awaited) > 0 else ""
    return Reason(
        "blocked", f"it waits for {what} to succeed" + (f": {named}{more}" if named else "")
    )


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


def _ending(facts: Waiting) -> Reason | None:
    group, hosts = facts.group, facts.hosts
    if facts.coverage is not None and (reason := ending_reason(facts.coverage)):
        return reason
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
    line = with_debt(f"cleanup on {host_names(cleaning)}", cleaning)
    silent = [host for host in cleaning if not facts.in_contact(host)]
    if silent:
        after = max(host.lost_after_seconds for host in silent)
        seen = names([last_seen(host, facts) for host in silent])
        line = (
            f"{line}, not in contact: {seen}; their teardown is owed after {span(after)} of silence"
        )
    return Reason("cleanup", line)


def _delayed(group: WaitingGroup) -> Reason:
    """Return the reason where nothing can be claimed: the next attempt is not due, or was just given back."""
    if group.delayed_seconds is None:
        return Reason("assigning", "about to be claimed")
    return Reason("delayed", f"the next attempt is due in {span(max(0.0, group.delayed_seconds))}")


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


def _held(holders: Sequence[WaitingHost], facts: Waiting) -> Reason | None:
    """Return what the leases of the group do; None if it has no lease."""
    taken = [host for host in holders if facts.lease_state(host) is LeaseState.ACTIVE]
    ready = [host for host in taken if host.environment is EnvironmentState.READY]
    working = [host for host in ready if facts.in_contact(host)]
    if working:
        return _working(working, facts)
    if ready:
        return Reason("suspect", _silent_host(ready[0], facts))
    current = [host for host in holders if facts.lease_state(host) is not LeaseState.ENDING]
    for host in current:
        if host.setup is not None and host.setup.state is HookState.WAITING:
            line = f"{host.name} waits for infrastructure: {_end_of(host.setup)}"
            return Reason("infrastructure", line)
    if current:
        return _beginning(current[0], facts)
    if holders:
        return Reason("leaving", f"{host_names(holders)} finishes its tasks and leaves")
    return None


def _working(hosts: Sequence[WaitingHost], facts: Waiting) -> Reason:
    """Return what hosts with a ready environment do: a suspected one (C-33) gets no task."""
    suspected = facts.moment.failed(HostFailureKind.SUSPECTED, facts.group.number)
    trusted = [host for host in hosts if not suspected >> facts.host_state(host).ordinal & 1]
    if trusted:
        return Reason("working", f"tasks run on {host_names(trusted)}", False)
    sentence = failure(HostFailureKind.SUSPECTED)
    host = hosts[0]
    line = sentence(facts.moment, facts.group_state, facts.host_state(host))
    return Reason("suspected", f"{host.name} {line}")


def _beginning(host: WaitingHost, facts: Waiting) -> Reason:
    if facts.lease_state(host) is LeaseState.OFFERED:
        return Reason("offered", f"offered to {host.name}")
    if not facts.in_contact(host):
        return Reason("suspect", _silent_host(host, facts))
    return Reason("setup", f"setup on {host.name}")


def _silent_host(host: WaitingHost, facts: Waiting) -> str:
    return _silent_line(host.name, facts.silent_seconds(host), host.alive_in_seconds)


def _silent_line(name: str, silent: float | None, alive_in: float | None) -> str:
    line = f"{name} has not been in contact for {span(silent)}"
    if alive_in is None:
        return line
    return f"{line}; its tasks go to other hosts in {span(max(0.0, alive_in))} unless it comes back"


def _on_its_way(facts: Waiting) -> Reason | None:
    """Return which host another task group leaves, or has left, for this one."""
    number = facts.group.number
    for host in facts.hosts if facts.group.ready else ():
        if host.lease_number is not None and host.lease_for == number:
            return Reason("freed", f"{host.name} is being freed for it: {_leaves(host)}")
        if facts.in_contact(host) and any(freed.group == number for freed in host.freed_for):
            return Reason("freed", f"{host.name} has been freed for it, and is about to be offered")
    return None


def _leaves(host: WaitingHost) -> str:
    """Return what a host does before it serves the task group for which its lease ends."""
    line = f"it ends its tasks of {host.holder_name or 'a deleted task group'} first"
    left = host.asked_back_in_seconds
    if left is None or left <= 0:
        return line
    return f"{line}, and gives back in {span(left)} those that have not started"


def _not_offered(facts: Waiting) -> Reason:
    reason = no_host_reason(facts) or _unsent(facts.group)
    return reason or Reason("assigning", "about to be offered to a host")


def _end_of(setup: SetupRun) -> str:
    return hook_end(setup.message, setup.exit_code, setup.signal)
