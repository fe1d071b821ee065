"""What submitted tasks depend on: finds the parents, locks their groups, and writes the edges (protocol P14).

An edge leads from a task that is there to a new one, so there are no cycles.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from mitosis.contracts.errors import InvalidRequest, PartMissing, TooLarge
from mitosis.contracts.lifecycle import TaskState
from mitosis.contracts.task import MAX_DEPENDENCIES, SubmittedTask
from mitosis.store.dependencies.resolve import resolve_group, resolve_some
from mitosis.store.missing import require_task_group
from mitosis.store.pg.arrays import number_array
from mitosis.store.pg.database import Connection
from mitosis.store.pg.rows import fetch_all, fetch_one
from mitosis.store.pg.statements import load
from mitosis.store.store import Store

SQL = load("dependencies/edges.sql")


@dataclass(frozen=True, slots=True)
class _ChildGroup:
    number: int
    user_group_id: int


@dataclass(frozen=True, slots=True)
class _EarlierPart:
    part: int
    task_ids: list[int]


@dataclass(frozen=True, slots=True)
class _Parent:
    id: int
    group_id: int


@dataclass(frozen=True, slots=True)
class _ParentState:
    id: int
    state: TaskState | None
    unresolved: bool


@dataclass(frozen=True, slots=True)
class Submitted:
    """A part of a submission: where it goes, and its tasks."""

    group: UUID
    key: str | None
    part: int
    tasks: Sequence[SubmittedTask]


@dataclass(frozen=True, slots=True)
class Parents:
    """What the tasks of a part depend on, with the groups of these locked."""

    group_number: int
    outside: Sequence[Sequence[int]]
    """Of each task: numbers of tasks that were there before."""
    inside: Sequence[Sequence[int]]
    """Of each task: indices of earlier tasks of the part."""
    groups: Mapping[int, int]
    """The group of each parent that was there before."""


@dataclass(frozen=True, slots=True)
class NewEdges:
    """The edges to new tasks, and what follows from the present states of the parents."""

    edges: Sequence[tuple[int, int]]
    """Parent and child."""
    unfinished: Sequence[int] = ()
    """Parents that have not ended."""
    unsuccessful: Mapping[int, TaskState] = field(default_factory=dict)
    """Parents that have ended otherwise than by success."""

    def waits_for(self) -> Mapping[int, int]:
        """Return how many parents each child waits for; 0 is left out."""
        waited_for = {*self.unfinished, *self.unsuccessful}
        counts: dict[int, int] = {}
        for parent, child in self.edges:
            if parent in waited_for:
                counts[child] = counts.get(child, 0) + 1
        return counts


def depends(tasks: Sequence[SubmittedTask]) -> bool:
    """Return whether some task depends on another."""
    return any(task.depends_on for task in tasks)


async def resolve_earlier(store: Store, task_group_id: UUID) -> None:
    """Resolve what is due in a group before a submit to it, which would resolve all in one transaction."""
    async with store.database.connection() as connection:
        values = {"group": task_group_id}
        group = await fetch_one(connection, _ChildGroup, SQL["child_group"], values)
    if group is not None:
        await resolve_group(store, group.number)


async def lock_parents(connection: Connection, submitted: Submitted) -> Parents:
    """Find what the tasks depend on; lock the group of the tasks and those of their parents.

    Raises:
        NotFound: no such group.
        InvalidRequest: names a task that does not exist, or that is in another user group.
        PartMissing: the part with a parent has not been submitted yet.
        TooLarge: too many dependencies.
    """
    group = await fetch_one(connection, _ChildGroup, SQL["child_group"], {"group": submitted.group})
    group = require_task_group(group, submitted.group)
    outside, inside = await _places(connection, submitted, group.number)
    groups = await _groups(connection, submitted, outside, group.user_group_id)
    numbers = sorted({group.number, *groups.values()})
    locked = await connection.execute(SQL["lock_groups"], {"groups": number_array(numbers)})
    left = {int(row["group_id"]) for row in await locked.fetchall()}
    for parent, of_group in groups.items():
        if of_group not in left:
            raise _unknown(submitted, outside, parent)
    return Parents(group.number, outside, inside, groups)


async def new_edges(
    connection: Connection, parents: Parents, ids: Sequence[int], merged: Collection[int]
) -> NewEdges:
    """Return the edges to the tasks that are new.

    Args:
        connection: that of the transaction that has locked the groups.
        parents: see :func:`lock_parents`.
        ids: the task of each place in the part; of a merged one that of its duplicate.
        merged: the places of merged ones.
    """
    edges = []
    created = {child for place, child in enumerate(ids) if place not in merged}
    for place, child in enumerate(ids):
        if place not in merged:
            found = [*parents.outside[place], *(ids[index] for index in parents.inside[place])]
            edges += [(parent, child) for parent in dict.fromkeys(found)]
    old = sorted({parent for parent, _ in edges} - created)
    states = await _states(connection, parents.group_number, old)
    waited_for = {parent for parent, _ in edges if states.get(parent) is None}
    ended = {one: state for one, state in states.items() if state is not None}
    unsuccessful = {one: how for one, how in ended.items() if how is not TaskState.SUCCEEDED}
    return NewEdges(edges, sorted(waited_for), unsuccessful)


async def add_edges(
    connection: Connection,
    parents: Parents,
    new: NewEdges,
    created: Collection[int],
    given: Sequence[int],
    columns: Mapping[str, object],
) -> None:
    """Queue the new tasks, write the edges, and mark the parents that have children now.

    Args:
        connection: that of the transaction that has locked the groups.
        parents: see :func:`lock_parents`.
        new: see :func:`new_edges`.
        created: the tasks that are no duplicates.
        given: all tasks, in the order of ``columns``.
        columns: the parameters that ``queue_dependent`` shares with ``submit_queue``.
    """
    waits_for = new.waits_for()
    values: dict[str, object] = {
        **columns,
        "ids": number_array(given),
        "waits_for": number_array(waits_for.get(one, 0) for one in given),
        "queued": number_array(sorted(created)),
        "parents": number_array(one for one in new.unfinished if one in created),
    }
    await connection.execute(SQL["queue_dependent"], values)
    by_group: dict[int, list[int]] = {}
    for parent in new.unfinished:
        if parent not in created:
            of_group = parents.groups.get(parent, parents.group_number)
            by_group.setdefault(of_group, []).append(parent)
    for number, ids in sorted(by_group.items()):
        values = {"group_number": number, "ids": number_array(sorted(ids))}
        await connection.execute(SQL["mark_parents"], values)
    waited_for: dict[int, TaskState | None] = dict.fromkeys(new.unfinished)
    waited_for |= new.unsuccessful
    values = {
        "group_number": parents.group_number,
        "parents": number_array(parent for parent, _ in new.edges),
        "children": number_array(child for _, child in new.edges),
        "waited_for": number_array(waited_for),
        "outcomes": [None if state is None else state.value for state in waited_for.values()],
    }
    await connection.execute(SQL["add_edges"], values)


async def _places(
    connection: Connection, submitted: Submitted, group_number: int
) -> tuple[list[list[int]], list[list[int]]]:
    """Return the parents of each task: numbers, and indices of this part."""
    if sum(len(task.depends_on) for task in submitted.tasks) > MAX_DEPENDENCIES:
        raise TooLarge(
            f"the tasks of one call may depend on {MAX_DEPENDENCIES} tasks in all: send fewer, or"
            " put a task between that all others depend on",
            field="tasks",
            limit=MAX_DEPENDENCIES,
        )
    earlier = await _earlier_parts(connection, submitted, group_number)
    outside: list[list[int]] = []
    inside: list[list[int]] = []
    for place, task in enumerate(submitted.tasks):
        numbers, indices = [], []
        for at, parent in enumerate(task.depends_on):
            where = f"tasks[{place}].depends_on[{at}]"
            if isinstance(parent, int):
                numbers.append(parent)
            elif parent[0] == submitted.part:
                if parent[1] >= place:
                    raise InvalidRequest("must be an earlier task of the submission", field=where)
                indices.append(parent[1])
            else:
                of_part = earlier[parent[0]]
                if parent[1] >= len(of_part):
                    raise InvalidRequest(
                        f"part {parent[0]} has {len(of_part)} tasks only", field=where
                    )
                numbers.append(of_part[parent[1]])
        outside.append(numbers)
        inside.append(indices)
    return outside, inside


async def _earlier_parts(
    connection: Connection, submitted: Submitted, group_number: int
) -> Mapping[int, Sequence[int]]:
    named = {
        parent[0]: f"tasks[{place}].depends_on[{at}]"
        for place, task in enumerate(submitted.tasks)
        for at, parent in enumerate(task.depends_on)
        if not isinstance(parent, int) and parent[0] != submitted.part
    }
    if not named:
        return {}
    if submitted.key is None:
        raise InvalidRequest(
            "another part belongs to the same idempotency_key: give one", field=min(named.values())
        )
    values = {
        "group_number": group_number,
        "key": submitted.key,
        "parts": number_array(sorted(named)),
    }
    rows = await fetch_all(connection, _EarlierPart, SQL["earlier_parts"], values)
    found = {row.part: row.task_ids for row in rows}
    for part, where in named.items():
        if part not in found:
            raise PartMissing(
                f"part {part} has not been submitted: send the parts of a submission with"
                " dependencies in their order",
                field=where,
                part=part,
            )
    return found


async def _groups(
    connection: Connection,
    submitted: Submitted,
    outside: Sequence[Sequence[int]],
    user_group: int,
) -> Mapping[int, int]:
    ids = sorted({parent for parents in outside for parent in parents})
    if not ids:
        return {}
    values = {"ids": number_array(ids), "user_group": user_group}
    rows = await fetch_all(connection, _Parent, SQL["groups_of_parents"], values)
    groups = {row.id: row.group_id for row in rows}
    for parent in ids:
        if parent not in groups:
            raise _unknown(submitted, outside, parent)
    return groups


async def _states(
    connection: Connection, group_number: int, ids: Sequence[int]
) -> Mapping[int, TaskState | None]:
    """Return how each parent has ended; resolve its earlier children, so that only new ones are left."""
    if not ids:
        return {}
    values = {"group_number": group_number, "ids": number_array(ids)}
    rows = await fetch_all(connection, _ParentState, SQL["states_of_parents"], values)
    while any(row.unresolved for row in rows):
        await resolve_some(connection, group_number)
        rows = await fetch_all(connection, _ParentState, SQL["states_of_parents"], values)
    return {row.id: row.state for row in rows}


def _unknown(submitted: Submitted, outside: Sequence[Sequence[int]], parent: int) -> InvalidRequest:
    place = next(at for at, parents in enumerate(outside) if parent in parents)
    depends_on = submitted.tasks[place].depends_on
    at = depends_on.index(parent) if parent in depends_on else 0
    return InvalidRequest(
        f"there is no task {parent} in the task groups of this user group",
        field=f"tasks[{place}].depends_on[{at}]",
    )
