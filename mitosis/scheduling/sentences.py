"""The sentences about conditions that do not hold: each has the value compared and the threshold.

They are printed after the name of the host.
"""

from collections.abc import Callable, Sequence
from math import ceil, floor
from shlex import quote

from mitosis.contracts.host_failures import HostFailureKind
from mitosis.scheduling.binding import binding_mismatch
from mitosis.scheduling.facts import Capacity, Group, Work
from mitosis.scheduling.moment import Moment
from mitosis.scheduling.policy import Policy
from mitosis.scheduling.sizes import (
    is_measured,
    switch_seconds,
    tasks_per_lease,
    useful_leases,
    work_seconds,
)
from mitosis.scheduling.states import GroupState, HostState
from mitosis.scheduling.wording import compared, exact, names

Sentence = Callable[[Moment, GroupState, HostState], str]


def no_work(moment: Moment, group: GroupState, _: HostState) -> str:
    """Say that no task is ready, and when a delayed one will be."""
    line = f"is not needed: {no_task_is_ready(group.work.unfinished)}"
    due = group.work.delayed_until
    if due is None:
        return line
    return f"{line}; the next attempt is due in {exact(max(due - moment.now, 0.0), ceil)}"


def no_task_is_ready(unfinished: int) -> str:
    """Say how many tasks could be ready, and that one would have to be."""
    tasks = "1 unfinished task" if unfinished == 1 else f"{unfinished} unfinished tasks"
    return f"no task is ready: 0 of {tasks}, at least 1 is needed"


def max_managers(moment: Moment, group: GroupState, _: HostState) -> str:
    """Say how many hosts the task group has, and how many it may have."""
    return f"is not needed: the task group has {held_of_most(moment, group)}"


def held_of_most(moment: Moment, group: GroupState, given: int = 0) -> str:
    """Return ``2 of at most 3 hosts``; ``given``: by the present decision, besides."""
    held = moment.held(group)
    count = held.live + held.ending + held.promised + given
    return f"{count} of at most {group.fact.max_managers} hosts"


def enough(moment: Moment, group: GroupState, _: HostState) -> str:
    """Say how many hosts the task group has, how many it can use, and what that is computed from."""
    return f"is not needed: the task group has {held_of_useful(moment, group)}"


def held_of_useful(moment: Moment, group: GroupState, given: int = 0) -> str:
    """Return ``1 of the 1 hosts that it can use``, and the numbers of which that follows.

    ``given``: by the present decision, besides those that it has.
    """
    held, work, workers, policy = moment.held(group), group.work, group.fact.workers, moment.policy
    useful = useful_leases(work, workers, held.full, policy)
    count = held.coming + held.full + held.promised + given
    by_ready = held.full + -(-work.ready // tasks_per_lease(workers, policy))
    reason = _by_ready(held.full, work, workers, policy)
    if is_measured(work, policy) and useful < by_ready:
        reason = _by_duration(work, workers, policy)
    return f"{count} of the {useful} hosts that it can use; {reason}"


def _by_ready(full: int, work: Work, workers: int, policy: Policy) -> str:
    least = "at least " if work.more_ready else ""
    tasks = "1 task is ready" if work.ready == 1 else f"{least}{work.ready} tasks are ready"
    each = "its worker" if workers == 1 else f"each of its {workers} workers"
    count = tasks_per_lease(workers, policy)
    takes = f"a host is used for each {count}, {policy.tasks_per_worker} for {each}"
    beside = f", beside {full} hosts that are full" if full else ""
    return f"{tasks}, and {takes}{beside}"


def _by_duration(work: Work, workers: int, policy: Policy) -> str:
    has, needs = work_seconds(work, workers), switch_seconds(work, policy)
    kind = "unfinished" if work.to_do > work.ready else "ready"
    tasks = "1 task is" if work.to_do == 1 else f"{work.to_do} tasks are"
    measured = f"setup {exact(work.setup_seconds)}, teardown {exact(work.teardown_seconds)}"
    least = f"at least {exact(policy.least_switch_seconds)}"
    return (
        f"{tasks} {kind}, {exact(work.task_seconds)} each, which is {exact(has)} of work for a host"
        f" with {workers} worker{'s' if workers > 1 else ''}; each host must have {exact(needs)} of it"
        f" ({measured}, {least})"
    )


def no_role(_: Moment, group: GroupState, __: HostState) -> str:
    """Say which role is missing."""
    return f"has no write role in user group {group.fact.user_group_name}"


def draining(*_: object) -> str:
    """Say what a drain means, and what ends it."""
    return "is draining: it finishes what it runs and takes nothing new until it is resumed"


def missing_tags(group: GroupState, host: HostState) -> list[str]:
    """Return the tags of the task group that the host does not have."""
    return sorted(group.fact.tags - host.fact.tags)


def removed(_: Moment, group: GroupState, host: HostState) -> str:
    """Say that a user removed the host, and how to add it."""
    return f"was removed from the task group; to add it: {_change_hosts(group, '--add', host.fact.name)}"


def not_named(_: Moment, group: GroupState, host: HostState) -> str:
    """Say how to name the host."""
    return f"is not named for the task group; to add it: {_change_hosts(group, '--add', host.fact.name)}"


def would_be_matched(group: GroupState, host: HostState) -> bool:
    """Return whether the present tags of both match: a refresh would make the host a member."""
    wanted, has = group.fact.tags, group.fact.tags & host.fact.tags
    return not wanted or bool(has == wanted if group.fact.tag_match == "all" else has)


def tags(_: Moment, group: GroupState, host: HostState) -> str:
    """Say which tags the host lacks, or that they have changed since the last refresh."""
    if would_be_matched(group, host):
        return (
            "is not a member: tags have changed since its members were matched; to match again:"
            f" {_change_hosts(group, '--refresh')}"
        )
    needs = f"{group.fact.tag_match} of {', '.join(sorted(group.fact.tags))}"
    return f"lacks {', '.join(missing_tags(group, host))}; the task group needs {needs}"


def _change_hosts(group: GroupState, *words: str) -> str:
    """Return the command that changes the hosts of a task group."""
    return " ".join(
        ["mitosis group managers", *(quote(word) for word in (group.fact.name, *words))]
    )


def cleaning(what: str) -> Sentence:
    """Return the sentence about a host that cleans up, and why it cannot begin to."""

    def sentence(_: Moment, __: GroupState, host: HostState) -> str:
        return f"cleans up after {what}" + (f": {host.fact.debt}" if host.fact.debt else "")

    return sentence


def misfit(_: Moment, group: GroupState, host: HostState) -> str:
    """Say why the workers cannot be bound to the cores of the host."""
    fact = group.fact
    return f"cannot serve it: {binding_mismatch(fact.workers, fact.binding, host.fact.cores or ())}"


def too_small(_: Moment, group: GroupState, host: HostState) -> str:
    """Name what the host has less of than one lease takes."""
    return f"is too small: {lacking(host.fact.capacity, group.fact.demand)}"


def lacking(has: Capacity, takes: Capacity) -> str:
    """Return ``2 of 4 cores`` for everything of which there is too little."""
    short = [
        f"{there} of {wanted} {name.replace('_', ' ')}"
        for name, there, wanted in zip(Capacity._fields, has, takes, strict=True)
        if there < wanted
    ]
    return f"it has {', '.join(short)}"


def failure(kind: HostFailureKind) -> Sentence:
    """Return the sentence about a failure of this kind."""

    def sentence(moment: Moment, group: GroupState, host: HostState) -> str:
        for found in host.fact.failures:
            if found.kind is kind and found.name[1] in (None, group.fact.number):
                return found.at(moment.now).sentence(host.fact.name)
        return "is tried again now"

    return sentence


def no_contact(moment: Moment, _: GroupState, host: HostState) -> str:
    """Say how long the host has been silent, and for how long it may be."""
    return silent(moment, host.fact.last_contact_at)


def silent(moment: Moment, last_contact_at: float | None) -> str:
    """Say how long a host has been silent, and for how long it may be."""
    allowed = moment.policy.suspect_after_seconds
    if last_contact_at is None:
        return f"has never been in contact; silence of {exact(allowed)} is allowed"
    silence = moment.now - last_contact_at
    whole = floor(silence)
    seen, least = compared(whole if whole >= allowed else silence, allowed)
    return f"was last seen {seen} ago; silence of {least} is allowed"


def busy(moment: Moment, group: GroupState, host: HostState) -> str:
    """Name the task groups that the host serves."""
    holders = [
        moment.snapshot.group_of(moment.snapshot.leases[number]).fact
        for number in sorted(host.leases)
    ]
    if not holders:
        return f"has too little room: {lacking(host.free, group.fact.demand)}"
    return f"is busy with {holders_compared(group.fact.priority, holders)}"


def holders_compared(priority: int, holders: Sequence[Group]) -> str:
    """Name the task groups that hold hosts with their priorities, beside that of the one that waits."""
    higher = all(holder.priority > priority for holder in holders)
    priorities = {holder.name: holder.priority for holder in holders}
    others = "another task group" if len(priorities) == 1 else "other task groups"
    first = " of higher priority" if higher else ""
    named = names([f"{name} (priority {theirs})" for name, theirs in sorted(priorities.items())])
    return f"{others}{first}: {named}; this one has priority {priority}"
