"""For each condition that does not hold, the change that makes it hold; none where no change can."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import ceil

from mitosis.contracts.host_failures import HostFailureKind
from mitosis.scheduling.changes import Change, ChangeKind
from mitosis.scheduling.facts import FOREVER, Work
from mitosis.scheduling.moment import Moment
from mitosis.scheduling.policy import Policy
from mitosis.scheduling.sentences import missing_tags, would_be_matched
from mitosis.scheduling.sizes import (
    is_measured,
    switch_seconds,
    tasks_per_lease,
    useful_leases,
)
from mitosis.scheduling.states import GroupState, HostState
from mitosis.scheduling.wording import exact

MOST_PRIORITY = 2**31 - 1
Remedy = Callable[[Moment, GroupState, HostState], Change | None]


def remedy(code: str, moment: Moment, group: GroupState, host: HostState) -> Change | None:
    """Return the change that makes the condition with this code hold."""
    make = REMEDIES.get(code)
    return None if make is None else make(moment, group, host)


def wait_until(moment: Moment, group: GroupState, host: HostState, at: float, why: str) -> Change:
    """Return the change that is nothing but time."""
    seconds = at - moment.now
    return Change(
        kind=ChangeKind.WAIT,
        line=f"wait {exact(seconds, ceil)}: {why}",
        group=group.fact.number,
        host=host.fact.number,
        value=at,
        wait_seconds=seconds,
    )


def priority_of(group: GroupState, value: int, above: int | None = None) -> Change | None:
    """Return the change to a priority; ``above``: the one that it must exceed. None: none is so high."""
    name = group.fact.name
    if value > MOST_PRIORITY:
        return None
    return Change(
        kind=ChangeKind.PRIORITY,
        line=f"set the priority of {name} {f'to {value}' if above is None else f'above {above}'}",
        group=group.fact.number,
        value=value,
        size=value - group.fact.priority,
    )


def priority_above(group: GroupState, priority: int) -> Change | None:
    """Return the change to a priority above this one; None: no priority is so high."""
    return priority_of(group, priority + 1, priority)


def submit(group: GroupState, ready: int) -> Change:
    """Return the submit of so many tasks that this many are ready."""
    more, name = ready - group.work.ready, group.fact.name
    tasks = f"submit {more} more {'task' if more == 1 else 'tasks'} to"
    return Change(
        kind=ChangeKind.SUBMIT,
        line=f"reopen {name} and {tasks} it" if group.fact.refuses_tasks else f"{tasks} {name}",
        group=group.fact.number,
        value=ready,
        size=more,
    )


def max_managers(group: GroupState, most: int) -> Change:
    """Return the change to a greater number of hosts that it may have."""
    return Change(
        kind=ChangeKind.MAX_MANAGERS,
        line=f"raise max_managers of {group.fact.name} to {most}",
        group=group.fact.number,
        value=most,
        size=most - (group.fact.max_managers or 0),
    )


def _submit(moment: Moment, group: GroupState, _: HostState) -> Change | None:
    """Return the submit of so many tasks that the task group can use one host more."""
    ready = _ready_for_one_more(moment, group)
    if ready is None:
        return None
    return submit(group, ready)


def _delayed(moment: Moment, group: GroupState, host: HostState) -> Change | None:
    """Return the wait for a delayed attempt, where one ready task is enough."""
    due = group.work.delayed_until
    enough = useful_leases(*_with_ready(moment, group, 1)) > _counted(moment, group)
    if due is None or group.work.ready > 0 or not enough:
        return None
    return wait_until(moment, group, host, due, "the next attempt is due then")


def _with_ready(moment: Moment, group: GroupState, ready: int) -> tuple[Work, int, int, Policy]:
    work = replace(group.work, ready=ready, more_ready=False)
    return work, group.fact.workers, moment.held(group).full, moment.policy


def _counted(moment: Moment, group: GroupState) -> int:
    """Return the leases that count as long as something is ready."""
    held = moment.held(group)
    return held.coming + held.promised + held.full


def _ready_for_one_more(moment: Moment, group: GroupState) -> int | None:
    """Return the least number of ready tasks for one lease more; None if tasks take no time."""
    held, work, policy = moment.held(group), group.work, moment.policy
    workers, count = group.fact.workers, _counted(moment, group)
    ready = (held.coming + held.promised) * tasks_per_lease(workers, policy) + 1
    if is_measured(work, policy) and count > 0:
        if work.task_seconds <= 0:
            return None
        paid = (count + 1) * switch_seconds(work, policy) * workers / work.task_seconds
        ready = max(ready, int(paid))
        # Two quotients are rounded down: this number, or one of the next two, is enough.
        numbers = range(ready, ready + 3)
        paying = (n for n in numbers if useful_leases(*_with_ready(moment, group, n)) > count)
        return next(paying, None)
    return ready


def _max_managers(moment: Moment, group: GroupState, _: HostState) -> Change:
    held = moment.held(group)
    return max_managers(group, held.live + held.ending + held.promised + 1)


def _of_host(
    kind: ChangeKind,
    line: Callable[[GroupState, HostState], str],
    size: Callable[[Moment, GroupState, HostState], float] = lambda *_: 0.0,
) -> Remedy:
    """Return the remedy that changes one host."""

    def make(moment: Moment, group: GroupState, host: HostState) -> Change:
        return Change(
            kind=kind,
            line=line(group, host),
            group=group.fact.number,
            host=host.fact.number,
            size=size(moment, group, host),
        )

    return make


def _wanted_tags(group: GroupState, host: HostState) -> list[str]:
    """Return the tags that the host must get; none: tags have changed since the last refresh."""
    if would_be_matched(group, host):
        return []
    missing = missing_tags(group, host)
    return missing if group.fact.tag_match == "all" else missing[:1]


def _retag(group: GroupState, host: HostState) -> str:
    wanted, refresh = _wanted_tags(group, host), f"refresh the hosts of {group.fact.name}"
    return f"tag {', '.join(wanted)} on {host.fact.name} and {refresh}" if wanted else refresh


def _shortage(_: Moment, group: GroupState, host: HostState) -> float:
    """Return by how much the plan must shrink: cores, devices and GiB of memory together."""
    short = group.fact.demand.minus(host.fact.capacity)
    return max(short.cores, 0) + max(short.devices, 0) + max(short.memory_bytes, 0) / 2**30


def _silence(moment: Moment, _: GroupState, host: HostState) -> float:
    contact = host.fact.last_contact_at
    return FOREVER if contact is None else moment.now - contact


def _cheaper(*remedies: Remedy) -> Remedy:
    """Return the remedy that makes the cheapest of several changes."""

    def make(moment: Moment, group: GroupState, host: HostState) -> Change | None:
        made = (one(moment, group, host) for one in remedies)
        return min(filter(None, made), key=lambda change: change.price, default=None)

    return make


def _until_tried_again(kind: HostFailureKind) -> Remedy:
    """Return the remedy that waits for the end of a pause."""

    def make(moment: Moment, group: GroupState, host: HostState) -> Change:
        number = group.fact.number
        pauses = (
            failure.blocks_until
            for failure in host.fact.failures
            if failure.kind is kind and failure.name[1] in (None, number)
        )
        at = max(pauses, default=moment.now)
        return wait_until(moment, group, host, at, f"{host.fact.name} is tried again then")

    return make


_ADD = _of_host(
    ChangeKind.ADD_HOST, lambda group, host: f"add {host.fact.name} to {group.fact.name}"
)
_PLAN = _of_host(
    ChangeKind.PLAN,
    lambda group, host: f"change the plan of {group.fact.name} so that it fits {host.fact.name}",
    _shortage,
)
_RELEASE = _of_host(
    ChangeKind.RELEASE_QUARANTINE,
    lambda group, host: f"release the quarantine of {host.fact.name} for {group.fact.name}",
)
_CLEANUP = _of_host(
    ChangeKind.CLEANUP, lambda _, host: f"wait until {host.fact.name} has cleaned up"
)
_WORK = _cheaper(_submit, _delayed)
REMEDIES: Mapping[str, Remedy] = {
    "no_work": _WORK,
    "enough": _WORK,
    "max_managers": _max_managers,
    "no_role": _of_host(
        ChangeKind.GRANT_ROLE,
        lambda group, host: (
            f"give {host.fact.name} a write role in user group {group.fact.user_group_name}"
        ),
    ),
    "removed": _ADD,
    "not_named": _ADD,
    "tags": _of_host(
        ChangeKind.RETAG, _retag, lambda _, group, host: len(_wanted_tags(group, host))
    ),
    "misfit": _PLAN,
    "too_small": _PLAN,
    "setup_failed": _of_host(
        ChangeKind.RETRY_SETUP,
        lambda group, host: (
            f"repair the setup of {group.fact.name} on {host.fact.name} and retry it"
        ),
    ),
    "quarantined": _cheaper(_RELEASE, _until_tried_again(HostFailureKind.QUARANTINED)),
    "suspected": _RELEASE,
    "no_contact": _of_host(
        ChangeKind.CONTACT, lambda _, host: f"bring {host.fact.name} back into contact", _silence
    ),
    "draining": _of_host(
        ChangeKind.END_DRAIN, lambda _, host: f"end the drain of {host.fact.name}"
    ),
    "cleanup": _CLEANUP,
    "unclean": _CLEANUP,
    **{
        kind.value: _until_tried_again(kind)
        for kind in (
            HostFailureKind.UNREACHABLE,
            HostFailureKind.WORKERS_NOT_STARTED,
            HostFailureKind.NO_PROGRESS,
        )
    },
}
"""By the code of a condition. ``ended`` has none; ``busy`` depends on who holds the host (``explain``)."""
