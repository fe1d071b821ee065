"""For each condition that does not hold, the change that makes it hold; none where no change can."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from mitosis.contracts.host_failures import HostFailureKind
from mitosis.scheduling.changes import Change, ChangeKind
from mitosis.scheduling.moment import Moment
from mitosis.scheduling.sentences import missing_tags
from mitosis.scheduling.sizes import useful_leases
from mitosis.scheduling.states import GroupState, HostState
from mitosis.scheduling.wording import span

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
        line=f"wait {span(seconds)}: {why}",
        group=group.fact.number,
        host=host.fact.number,
        value=at,
        wait_seconds=seconds,
    )


def priority_above(group: GroupState, priority: int) -> Change:
    """Return the change to a priority above this one."""
    return Change(
        kind=ChangeKind.PRIORITY,
        line=f"set the priority of {group.fact.name} above {priority}",
        group=group.fact.number,
        value=priority + 1,
    )


def _submit(moment: Moment, group: GroupState, _: HostState) -> Change | None:
    """Return the submit of so many tasks that the task group can use one host more."""
    ready = _ready_for_one_more(moment, group)
    if ready is None:
        return None
    more = ready - group.work.ready
    return Change(
        kind=ChangeKind.SUBMIT,
        line=f"submit {more} more {'task' if more == 1 else 'tasks'} to {group.fact.name}",
        group=group.fact.number,
        value=ready,
    )


def _ready_for_one_more(moment: Moment, group: GroupState) -> int | None:
    """Return the least number of ready tasks for one lease more; None if tasks take no time."""
    held, work, policy = moment.held(group), group.work, moment.policy
    workers, coming = group.fact.workers, held.coming + held.promised
    ready = coming * policy.tasks_per_worker * workers + 1
    count = coming + held.full
    if work.tasks_measured >= policy.measured_tasks and count > 0:
        if work.task_seconds <= 0:
            return None
        switch = max(work.setup_seconds + work.teardown_seconds, policy.least_switch_seconds)
        ready = max(ready, int((count + 1) * switch * workers / work.task_seconds))
        # The quotient may be rounded to the number below.
        while useful_leases(replace(work, ready=ready), workers, held.full, policy) <= count:
            ready += 1
    return ready


def _max_managers(moment: Moment, group: GroupState, _: HostState) -> Change:
    held = moment.held(group)
    most = held.live + held.ending + held.promised + 1
    return Change(
        kind=ChangeKind.MAX_MANAGERS,
        line=f"raise max_managers of {group.fact.name} to {most}",
        group=group.fact.number,
        value=most,
    )


def _of_host(kind: ChangeKind, line: Callable[[GroupState, HostState], str]) -> Remedy:
    """Return the remedy that changes one host."""

    def make(_: Moment, group: GroupState, host: HostState) -> Change:
        return Change(
            kind=kind,
            line=line(group, host),
            group=group.fact.number,
            host=host.fact.number,
        )

    return make


def _retag(group: GroupState, host: HostState) -> str:
    missing = missing_tags(group, host)
    refresh = f"refresh the hosts of {group.fact.name}"
    if not missing:
        return refresh
    wanted = missing if group.fact.tag_match == "all" else missing[:1]
    return f"tag {', '.join(wanted)} on {host.fact.name} and {refresh}"


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
)
_RELEASE = _of_host(
    ChangeKind.RELEASE_QUARANTINE,
    lambda group, host: f"release the quarantine of {host.fact.name} for {group.fact.name}",
)
_CLEANUP = _of_host(
    ChangeKind.CLEANUP, lambda _, host: f"wait until {host.fact.name} has cleaned up"
)
REMEDIES: Mapping[str, Remedy] = {
    "no_work": _submit,
    "enough": _submit,
    "max_managers": _max_managers,
    "no_role": _of_host(
        ChangeKind.GRANT_ROLE,
        lambda group, host: (
            f"give {host.fact.name} a write role in user group {group.fact.user_group_name}"
        ),
    ),
    "removed": _ADD,
    "not_named": _ADD,
    "tags": _of_host(ChangeKind.RETAG, _retag),
    "misfit": _PLAN,
    "too_small": _PLAN,
    "setup_failed": _of_host(
        ChangeKind.RETRY_SETUP,
        lambda group, host: (
            f"repair the setup of {group.fact.name} on {host.fact.name} and retry it"
        ),
    ),
    "quarantined": _RELEASE,
    "suspected": _RELEASE,
    "no_contact": _of_host(
        ChangeKind.CONTACT, lambda _, host: f"bring {host.fact.name} back into contact"
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
