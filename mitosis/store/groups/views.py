"""Views of task groups: ``TaskGroupInfo`` for users and ``GroupView`` for their workflow."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any
from uuid import UUID

from pydantic import Field, model_validator
from sqlalchemy import (
    BigInteger,
    ColumnElement,
    FromClause,
    Integer,
    Select,
    Text,
    any_,
    bindparam,
    func,
    select,
    true,
)
from sqlalchemy.dialects.postgresql import ARRAY

from mitosis.contracts.control import GroupView
from mitosis.contracts.http import CancelStats, HookRunInfo, LeaseInfo, Page, TaskGroupInfo
from mitosis.contracts.lease_settings import terms_of
from mitosis.contracts.lifecycle import TaskGroupState
from mitosis.contracts.switching import SwitchingCosts
from mitosis.contracts.temporal_names import task_group_workflow_id
from mitosis.store.groups.cleanup import AWAITED, cleanup_parameters
from mitosis.store.leases.failed_setups import failed_setups
from mitosis.store.leases.failing_host import read_failing_host
from mitosis.store.leases.reasons import waiting_for
from mitosis.store.leases.switching import switching_of
from mitosis.store.leases.waiting import read_waiting
from mitosis.store.missing import require_task_group
from mitosis.store.pg.compose import Composed, compose, fetch_composed
from mitosis.store.pg.database import Connection
from mitosis.store.pg.paging import decode_cursor, encode_cursor, page_limit
from mitosis.store.pg.rows import fetch_all, fetch_one
from mitosis.store.pg.statements import load
from mitosis.store.pg.tables import group_live, task_groups
from mitosis.store.store import Store
from mitosis.store.users.viewer import USER_GROUPS_OF_VIEWER, VIEWER_IS_ADMIN

SQL = load("groups/views.sql")
OBSERVE = SQL["observe"].replace("{awaited}", AWAITED)
DETAILS = SQL["details"].replace(
    "$switching$", switching_of("d.group_id = %(group_number)s AND d.manager_id IS NULL")
)
MAX_PAGE = 500
_TEXTS = ARRAY(Text)
_CONDITIONS = {
    "tags": task_groups.c.tags.contains(bindparam("tags", type_=_TEXTS)),
    "labels": task_groups.c.labels.contains(bindparam("labels", type_=_TEXTS)),
    "name": task_groups.c.name.like(bindparam("name", type_=Text)),
}
"""Conditions on the row of a group, each with the parameter of its name."""
_LIMITS = frozenset({"states", "after", *_CONDITIONS})
_AFTER = bindparam("after", type_=BigInteger)
_WHAT_IS_SEEN = compose(select(VIEWER_IS_ADMIN.label("everything")))


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


@dataclass(frozen=True, slots=True)
class _Key:
    id: int
    uuid: UUID


@dataclass(frozen=True, slots=True)
class _Seen:
    everything: bool


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
    switching: SwitchingCosts


async def read_group(store: Store, task_group_id: UUID) -> NumberedInfo:
    """Return everything about one group.

    Raises:
        NotFound: there is no such group.
    """
    async with store.database.in_index_order() as connection:
        found = await fetch_one(connection, NumberedInfo, SQL["show"], {"ids": [task_group_id]})
        shown = require_task_group(found, task_group_id)
        parameters = {"group_number": shown.number, "unfinished": shown.tasks_unfinished}
        details = await fetch_one(connection, _Details, DETAILS, parameters)
        reason = await _waiting_for(connection, store, shown.number, settled=shown.settled)
        failing = await read_failing_host(
            connection,
            store,
            shown.number,
            failed=shown.tasks_failed,
            succeeded=shown.tasks_succeeded,
        )
    terms = terms_of(shown.lease_settings.values(), store.lease_terms)
    more: dict[str, object] = {
        "waiting_for": reason,
        "lease_terms": terms.shown(),
        "failing_host": failing,
    }
    if details is not None:
        more |= {
            "tasks_running": details.tasks_running,
            "tasks_per_second": details.tasks_per_second,
            "leases": details.leases,
            "hook_runs": details.hook_runs,
            "switching": details.switching,
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
    key = decode_cursor("task-groups", after, int) if after else ()
    values = {"viewer": viewer_id, "limit": size + 1, **_filter_values(which, *key)}
    conditions = frozenset(_LIMITS & values.keys())
    by_array = which.tags or which.labels  # their index has no order
    database = store.database
    reading = database.connection() if by_array else database.in_index_order(sorts=False)
    async with reading as connection:
        (seen,) = await fetch_composed(connection, _Seen, _WHAT_IS_SEEN, viewer=viewer_id)
        statement = ids_of_page(which.settled, conditions, everything=seen.everything)
        found = await fetch_composed(connection, _Key, statement, **values)
        ids = {"ids": [row.uuid for row in found[:size]]}
        shown = await fetch_all(connection, NumberedInfo, SQL["show"], ids)
    more = len(found) > size
    return Page(
        items=[*shown], next=encode_cursor("task-groups", found[size - 1].id) if more else None
    )


async def observe_group(store: Store, task_group_id: UUID) -> GroupView:
    """Return the group as its workflow sees it; ``exists=False`` when there is none."""
    async with store.database.connection() as connection:
        parameters = {"group": task_group_id, **cleanup_parameters()}
        view = await fetch_one(connection, _Observed, OBSERVE, parameters)
        if view is None:
            return GroupView(task_group_id=task_group_id, exists=False)
        reason = await _waiting_for(connection, store, view.number, settled=view.settled)
        failed = bool(await failed_setups(connection, view.number))
    return view.model_copy(update={"waiting_for": reason, "setup_failed": failed})


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


def _filter_values(which: GroupFilter, after: int | None = None) -> dict[str, object]:
    """Return the parameters of the conditions that the list is limited by."""
    values = {
        "states": [state.value for state in dict.fromkeys(which.states)],
        "tags": [*which.tags],
        "labels": [*which.labels],
        "name": None if which.name is None else _like(which.name),
        "after": after,
    }
    return {name: value for name, value in values.items() if value not in (None, [])}


@cache
def ids_of_page(settled: bool | None, conditions: frozenset[str], *, everything: bool) -> Composed:
    """Select the ids of a page of groups, newest first: of ``everything``, or of the viewer's user groups.

    One page of each user group, or of each state that is asked for, then the newest of these: an index has
    each in this order, so that the groups of other users, or in other states, are not read. The row of the
    other table is a subquery, which PostgreSQL can only find by its key.
    """
    limit = bindparam("limit", type_=Integer)
    of_group = [task_groups.c.kind != "direct"]
    of_group += [_CONDITIONS[name] for name in sorted(conditions - {"states", "after"})]
    by_array = not conditions.isdisjoint({"tags", "labels"})
    if everything and not by_array and (settled is False or "states" in conditions):
        return _ids_by_state(settled, conditions, of_group)
    page = select(task_groups.c.id, task_groups.c.uuid).where(*of_group)
    if "after" in conditions:
        page = page.where(task_groups.c.id < _AFTER if everything else -task_groups.c.id > -_AFTER)
    of_live = group_live.c.group_id == task_groups.c.id
    if settled is not None:
        settled_at = select(group_live.c.settled_at).where(of_live).scalar_subquery()
        page = page.where(settled_at.is_not(None) if settled else settled_at.is_(None))
    if "states" in conditions:
        state = select(group_live.c.state).where(of_live).scalar_subquery()
        page = page.where(state == any_(bindparam("states", type_=_TEXTS)))
    if everything:
        return compose(page.order_by(task_groups.c.id.desc()).limit(limit))
    parts = USER_GROUPS_OF_VIEWER.subquery()
    page = page.where(task_groups.c.user_group_id == parts.c.user_group_id)
    return _newest_of_each(parts, page.order_by(-task_groups.c.id).limit(limit))


def _ids_by_state(
    settled: bool | None, conditions: frozenset[str], of_group: Sequence[ColumnElement[bool]]
) -> Composed:
    """Select them from the index of the states, or of the groups that are not settled."""
    uuid = select(task_groups.c.uuid).where(task_groups.c.id == group_live.c.group_id, *of_group)
    page = select(group_live.c.group_id.label("id"), uuid.scalar_subquery().label("uuid"))
    by_state = "states" in conditions
    if "after" in conditions:
        number = group_live.c.group_id
        page = page.where(-number > -_AFTER if by_state else number < _AFTER)
    if settled is not None:
        settled_at = group_live.c.settled_at
        page = page.where(settled_at.is_not(None) if settled else settled_at.is_(None))
    if not by_state:
        listed = page.order_by(group_live.c.group_id.desc()).offset(0).subquery()
        return compose(_existing(listed, listed.c.id.desc()))
    # PostgreSQL sees an order of the page outside of it only if it is that of a column.
    place = (-group_live.c.group_id).label("place")
    page = page.add_columns(place).order_by(place).offset(0)
    asked = func.unnest(bindparam("states", type_=_TEXTS))
    states = asked.table_valued("state").render_derived()
    page = page.where(group_live.c.state == states.c.state).correlate(states)
    of_state = page.lateral()
    return _newest_of_each(states, _existing(of_state, of_state.c.place))


def _existing(listed: FromClause, order: ColumnElement[Any]) -> Select[Any]:
    shown = select(listed.c.id, listed.c.uuid).where(listed.c.uuid.is_not(None))
    return shown.order_by(order).limit(bindparam("limit", type_=Integer))


def _newest_of_each(parts: FromClause, page: Select[Any]) -> Composed:
    of_part = page.lateral()
    rows = select(of_part.c.id, of_part.c.uuid).select_from(parts.join(of_part, true()))
    newest = rows.order_by(of_part.c.id.desc()).limit(bindparam("limit", type_=Integer))
    return compose(newest)


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
