"""The search attributes and current details of a workflow, as shown by Temporal's own tools. Pure."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from temporalio.common import SearchAttributeKey, SearchAttributeUpdate

from mitosis.contracts.control import GroupView, ManagerView, Names
from mitosis.contracts.lifecycle import EnvironmentState, LeaseState, ManagerState
from mitosis.contracts.run_control import RunSituation
from mitosis.contracts.temporal_names import SEARCH_ATTRIBUTES

_KEY_TYPES: Mapping[str, Callable[[str], SearchAttributeKey[Any]]] = {
    "Keyword": SearchAttributeKey.for_keyword,
    "KeywordList": SearchAttributeKey.for_keyword_list,
    "Int": SearchAttributeKey.for_int,
}
KEYS: Mapping[str, SearchAttributeKey[Any]] = {
    name: _KEY_TYPES[value_type](name) for name, value_type in SEARCH_ATTRIBUTES.items()
}
"""Typed key of each of our search attributes."""

Attributes = Mapping[str, str | int | tuple[str, ...]]
"""Search attribute → value. A missing attribute is unset."""


def group_attributes(view: GroupView) -> Attributes:
    """Return the search attributes of a task group."""
    attributes: dict[str, str | int | tuple[str, ...]] = {
        "MitosisState": str(view.state),
        "MitosisPriority": view.priority,
    }
    if view.name:
        attributes["MitosisTaskGroup"] = view.name
    if view.group_name:
        attributes["MitosisGroup"] = view.group_name
    if view.tags:
        attributes["MitosisTags"] = view.tags
    if view.result is not None:
        attributes["MitosisResult"] = str(view.result)
    return attributes


def group_names(view: GroupView) -> Names:
    """Return what the memo of a task group's workflow says."""
    return Names(task_group=view.name or None, user_group=view.group_name or None)


def run_attributes(run: RunSituation) -> Attributes:
    """Return the search attributes of a run."""
    attributes: dict[str, str | int | tuple[str, ...]] = {
        "MitosisState": str(run.state),
        "MitosisJob": run.job_name,
        "MitosisGroup": run.group_name,
    }
    if run.is_over:
        attributes["MitosisResult"] = str(run.state)
    return attributes


def run_names(run: RunSituation) -> Names:
    """Return what the memo of a run's workflow says."""
    return Names(job=run.job_name or None, user_group=run.group_name or None)


def run_details(run: RunSituation, refused: str | None = None) -> str:
    """Describe a run in Markdown; ``refused`` is the last message that changed nothing."""
    if not run.exists:
        return "This run no longer exists."
    lines = [
        f"A run of **{run.group_name}/{run.job_name}** is **{run.state}**.",
        "",
        f"* steps: {run.steps_ended} of {run.steps_total} ended",
        f"* tasks: {run.tasks_created} created, {run.tasks_open} open, {run.tasks_failed} failed",
    ]
    if run.running_steps:
        lines.append(f"* running: {', '.join(run.running_steps)}")
    if run.stopped_by is not None:
        lines.append(f"* stopped by {run.stopped_by}: {run.reason or 'no reason given'}")
    if refused:
        lines.append(f"* refused: {refused}")
    return "\n".join(lines)


def manager_names(view: ManagerView) -> Names:
    """Return what the memo of a host's workflow says."""
    return Names(manager=view.name or None)


def group_details(view: GroupView, why: str, refused: str | None = None) -> str:
    """Describe a task group in Markdown; ``refused`` is the last message that changed nothing.

    While it waits: what keeps each host from it.
    """
    if not view.exists:
        return "This task group no longer exists."
    state = f"{view.state}, settled: {view.result}" if view.settled else str(view.state)
    done = view.total - view.unfinished
    return "\n".join(
        (
            f"**{view.group_name}/{view.name}** is **{state}**.",
            "",
            f"* tasks: {done} of {view.total} done ({view.succeeded} succeeded, {view.failed} failed, "
            f"{view.cancelled} cancelled), {view.unfinished} unfinished",
            f"* hosts: {view.live_leases} leases, {view.busy_environments} environments",
            f"* next: {why}",
            *(f"    * {line}" for line in view.chain),
            *([f"* refused: {refused}"] if refused else []),
        )
    )


def manager_attributes(view: ManagerView) -> Attributes:
    """Return the search attributes of a host."""
    return {"MitosisState": str(_state(view)), "MitosisManager": view.name}


def task_group_name(view: ManagerView, task_group_id: UUID) -> str:
    """Return the name of a task group that the host has to do with, as far as it is known; else its id."""
    known = [view.lease, *view.environments]
    names = [one.task_group_name for one in known if one and one.task_group_id == task_group_id]
    return next((name for name in names if name), str(task_group_id))


def manager_details(view: ManagerView, why: str, now: datetime) -> str:
    """Describe a host in Markdown; ``now``: the time of the view."""
    if not view.exists:
        return "This manager no longer exists."
    lines = [f"**{view.name}** is **{_state(view)}**.", ""]
    if (lease := view.lease) is not None:
        group = lease.task_group_name or lease.task_group_id
        lines.append(f"* lease {lease.epoch} of {group}: {lease.state}")
        if lease.turn is not None:
            due = now + timedelta(seconds=lease.turn.in_seconds)
            lines.append(f"* at {due:%Y-%m-%d %H:%M:%S} UTC: {lease.turn.why}")
    lines += [
        f"* environment of {env.task_group_name or env.task_group_id}: {env.state}"
        for env in view.environments
    ]
    lines.append(f"* next: {why}")
    if view.chain:
        lines.append(
            f"* not used, as of {now:%Y-%m-%d %H:%M:%S} UTC (now: `mitosis manager explain {view.name}`):"
        )
    return "\n".join((*lines, *(f"    * {line}" for line in view.chain)))


def _state(view: ManagerView) -> ManagerState:
    return view.state or _state_before_it_was_recorded(view)


def _state_before_it_was_recorded(view: ManagerView) -> ManagerState:
    """Return what a version without ``ManagerView.state`` showed: for the replay of its histories only.

    A replay must upsert the search attribute exactly where the first execution did.
    """
    lease = view.lease
    if lease is not None and lease.state is not LeaseState.ENDED:
        ready = any(
            env.task_group_id == lease.task_group_id and env.state is EnvironmentState.READY
            for env in view.environments
        )
        return ManagerState.EXECUTING if ready else ManagerState.PREPARING
    if any(env.state is EnvironmentState.TEARING_DOWN for env in view.environments):
        return ManagerState.CLEANUP
    return ManagerState.IDLE if view.online else ManagerState.OFFLINE


def changes(before: Attributes, after: Attributes) -> Sequence[SearchAttributeUpdate[Any]]:
    """Return what to upsert so that ``before`` becomes ``after``."""
    updates = []
    for name in sorted(before.keys() | after.keys()):
        if (value := after.get(name)) != before.get(name):
            key = KEYS[name]
            plain = list(value) if isinstance(value, tuple) else value
            updates.append(key.value_unset() if plain is None else key.value_set(plain))
    return updates
