"""Views of task groups: ``TaskGroupInfo`` for users and ``GroupView`` for their workflow."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from pydantic import Field, model_validator

from mitosis.contracts.control import GroupView
from mitosis.contracts.http import CancelStats, HookRunInfo, LeaseInfo, Page, TaskGroupInfo
from mitosis.contracts.lifecycle import TaskGroupState
from mitosis.contracts.temporal_names import task_group_workflow_id
from mitosis.store.leases.reasons import read_waiting, waiting_for
from mitosis.store.missing import require_task_group
from mitosis.store.pg.database import Connection
from mitosis.store.pg.paging import decode_cursor, encode_cursor, page_limit
from mitosis.store.pg.rows import fetch_all, fetch_one
from mitosis.store.pg.statements import load
from mitosis.store.store import Store

SQL = load("groups/views.sql")
MAX_PAGE = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFilter:
    """Which groups a list shows: all conditions hold. Empty = all that the viewer may see."""

    states: Sequence[TaskGroupState] = ()
    settled: bool | None = None
    tags: Sequence[str] = ()
    """It has all of these."""
    labels: Sequence[str] = ()
    name: str | None = None
    """Exactly this name, or a pattern with ``*``."""


class NumberedInfo(TaskGroupInfo):
    """A group as shown, with its number for the statements and topics that need it."""

    number: int = Field(exclude=True)

    @model_validator(mode="before")
    @classmethod
    def _with_workflow_id(cls, row: Mapping[str, Any]) -> Mapping[str, Any]:
        return {**row, "workflow_id": task_group_workflow_id(row["task_group_id"])}


class _Observed(GroupView):
    number: int = Field(exclude=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Details:
    tasks_running: int
    tasks_per_second: float | None
    leases: list[LeaseInfo]
    hook_runs: list[HookRunInfo]


async def read_group(store: Store, task_group_id: UUID) -> NumberedInfo:
    """Return everything about one group.

    Raises:
        NotFound: there is no such group.
    """
    async with store.database.connection() as connection:
        parameters = _show_parameters(group=task_group_id)
        found = await fetch_one(connection, NumberedInfo, SQL["show"], parameters)
        shown = require_task_group(found, task_group_id)
        parameters = {"group_number": shown.number, "unfinished": shown.tasks_unfinished}
        details = await fetch_one(connection, _Details, SQL["details"], parameters)
        reason = await _waiting_for(connection, store, shown.number, settled=shown.settled)
    more: dict[str, object] = {"waiting_for": reason}
    if details is not None:
        more |= {
            "tasks_running": details.tasks_running,
            "tasks_per_second": details.tasks_per_second,
            "leases": details.leases,
            "hook_runs": details.hook_runs,
            "estimated_completion_at": _estimate(shown.tasks_unfinished, details.tasks_per_second),
        }
    return shown.model_copy(update=more)


async def list_groups(
    store: Store,
    viewer_id: UUID,
    which: GroupFilter | None = None,
    *,
    after: str | None = None,
    limit: int = 50,
) -> Page[TaskGroupInfo]:
    """Return groups that the user may read, newest first, without leases and hook runs; at most 500."""
    size, which = page_limit(limit, MAX_PAGE), which or GroupFilter()
    (number,) = decode_cursor("task-groups", after, int) if after else (None,)
    parameters = _show_parameters(
        viewer=viewer_id,
        states=[state.value for state in which.states],
        settled=which.settled,
        tags=list(which.tags),
        labels=list(which.labels),
        name=which.name and _like(which.name),
        after=number,
        limit=size + 1,
    )
    async with store.database.connection() as connection:
        found = await fetch_all(connection, NumberedInfo, SQL["show"], parameters)
    last = found[size - 1] if len(found) > size else None
    return Page(
        items=[*found[:size]],
        next=None if last is None else encode_cursor("task-groups", last.number),
    )


async def observe_group(store: Store, task_group_id: UUID) -> GroupView:
    """Return the group as its workflow sees it; ``exists=False`` when there is none."""
    async with store.database.connection() as connection:
        parameters = {"group": task_group_id}
        view = await fetch_one(connection, _Observed, SQL["observe"], parameters)
        if view is None:
            return GroupView(task_group_id=task_group_id, exists=False)
        reason = await _waiting_for(connection, store, view.number, settled=view.settled)
    return view.model_copy(update={"waiting_for": reason})


async def cancel_stats(store: Store, task_group_id: UUID) -> CancelStats:
    """Return what has become of the unfinished tasks of a cancelled group so far.

    Raises:
        NotFound: there is no such group.
    """
    async with store.database.connection() as connection:
        parameters = {"group": task_group_id}
        stats = await fetch_one(connection, CancelStats, SQL["cancel_stats"], parameters)
    return require_task_group(stats, task_group_id)


async def _waiting_for(
    connection: Connection, store: Store, group_number: int, *, settled: bool
) -> str | None:
    if settled:
        return None
    facts = await read_waiting(connection, store, group_number)
    return None if facts is None else waiting_for(facts)


def _show_parameters(**given: Any) -> dict[str, Any]:
    """Return the parameters of ``show``; without a filter it shows every group."""
    return {
        "group": None,
        "viewer": None,
        "states": [],
        "settled": None,
        "tags": [],
        "labels": [],
        "name": None,
        "after": None,
        "limit": None,
        **given,
    }


def _estimate(unfinished: int, rate: float | None) -> datetime | None:
    """Return when the group will be done at the current rate; None if no task is left or no rate is known."""
    if not unfinished or not rate:
        return None
    seconds = min(unfinished / rate, timedelta(days=36_500).total_seconds())
    return datetime.now(UTC) + timedelta(seconds=seconds)


def _like(pattern: str) -> str:
    """Return ``nightly-*`` as a LIKE pattern in which nothing else is special."""
    for special in ("\\", "%", "_"):
        pattern = pattern.replace(special, f"\\{special}")
    return pattern.replace("*", "%")
