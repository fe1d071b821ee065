"""Submitting tasks (protocol P11): all or nothing, once per idempotency key, once per dedup key.

A small batch without dedup keys or dependencies is one statement after the lock, in one round trip. A large
batch writes its payload first, without a lock. A batch with dedup keys reads the unfinished tasks that have
them. Both are a short transaction. Both lock ``group_live`` as late as possible. Tasks that depend on others
are queued by :func:`_enqueue_dependent`, with the groups of their parents locked too.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from uuid import UUID

import msgspec

from mitosis.contracts.errors import (
    IdempotencyKeyReused,
    InvalidRequest,
    NoWorkersAvailable,
    QueueFull,
    TaskGroupClosed,
    TooLarge,
)
from mitosis.contracts.lifecycle import TaskGroupState
from mitosis.contracts.task import (
    MAX_TASKS_PER_SUBMIT,
    SubmittedTask,
    check_submission,
    encode_submission,
)
from mitosis.contracts.wire import SubmitAnswer, SubmitTasks
from mitosis.store.dependencies.edges import (
    Parents,
    Submitted,
    add_edges,
    depends,
    lock_parents,
    new_edges,
    resolve_earlier,
)
from mitosis.store.dependencies.resolve import resolve_group
from mitosis.store.missing import require_task_group
from mitosis.store.pg.arrays import number_array
from mitosis.store.pg.database import BY_INDEX, Connection, Database
from mitosis.store.pg.rows import fetch_all, fetch_one, to_record
from mitosis.store.pg.statements import load
from mitosis.store.pg.tables import BLOCKED
from mitosis.store.processes.live import require_task_state
from mitosis.store.store import Store
from mitosis.store.tasks.latest import asks_for_latest, exact_names, named_tasks_of
from mitosis.store.tasks.named import named_task_ids, wrong_kind
from mitosis.store.tasks.queue_limits import IN_GROUP, check_queue_limits, queue_full

SQL = load("tasks/submit.sql")
SERVICE = "service"
ONE_STATEMENT = 500
"""Up to this many tasks are written in one statement under the lock: one round trip, no transaction."""


@dataclass(frozen=True, slots=True)
class _Columns:
    """The tasks of a batch as one array per column."""

    specs: list[str]
    priorities: str
    max_attempts: str
    delays: str
    exit_codes: list[str | None]


@dataclass(frozen=True, slots=True)
class _Submission:
    """One part of a submission and its place in PostgreSQL."""

    group: UUID
    key: str | None
    part: int
    digest: bytes
    most: int
    """Limit on the unfinished tasks of the group."""
    tasks: Sequence[SubmittedTask]
    columns: _Columns
    named_tasks: str | None = None
    """The number of the named task of each, as an array; None if they name none."""
    step: int | None = None
    """The number of the step of a run that they belong to."""

    @property
    def named(self) -> bool:
        """Return whether only a group of worker services takes the tasks."""
        return self.named_tasks is not None

    def parameters(self, **more: object) -> dict[str, object]:
        """Return the parameters that the statements share, with ``more``."""
        return {
            "group": self.group,
            "key": self.key,
            "part": self.part,
            "digest": self.digest,
            "most": self.most,
            "specs": self.columns.specs,
            "priorities": self.columns.priorities,
            "max_attempts": self.columns.max_attempts,
            "delays": self.columns.delays,
            "exit_codes": self.columns.exit_codes,
            "named": self.named,
            "named_tasks": self.named_tasks,
            "step": self.step,
            **more,
        }


@dataclass(frozen=True, slots=True)
class _Submitted:
    """The row of ``submit``."""

    state: TaskGroupState
    kind: str
    accepts: bool
    unfinished: int
    created: bool
    task_ids: list[int] | None


@dataclass(frozen=True, slots=True)
class _Known:
    """The row of ``known_submission``."""

    task_ids: list[int]
    created: int
    digest: bytes


@dataclass(frozen=True, slots=True)
class _Payload:
    """The row of ``submit_payload``."""

    task_ids: list[int] | None


@dataclass(frozen=True, slots=True)
class _LockedGroup:
    """The row of ``submit_lock``."""

    group_id: int
    kind: str
    state: TaskGroupState
    discarding: bool
    unfinished: int
    reopen_on_submit: bool


@dataclass(frozen=True, slots=True)
class _Queued:
    """A row of ``submit_queue``."""

    id: int


@dataclass(frozen=True, slots=True)
class _Duplicate:
    """A row of ``submit_duplicates``."""

    dedup_key: str
    id: int


async def submit_tasks(store: Store, task_group_id: UUID, request: SubmitTasks) -> SubmitAnswer:
    """Add up to 10,000 tasks, all or nothing. The caller has checked permission.

    Raises:
        NotFound: no such group.
        TaskGroupClosed: the group accepts none.
        InvalidRequest: a task is not valid, or not for this kind of group; names it by index.
        TooLarge: too many tasks, or a spec that is too large.
        QueueFull: too many tasks are unfinished.
        NoWorkersAvailable: no worker service supports any version of a named task, or can execute a task that
            requires one now.
        PartMissing: a task depends on one of a part that has not been submitted.
        UpgradeInProgress: a task depends on another, and a process of an older version runs.
    """
    database = store.database
    columns = _columns(request.tasks)
    keyed = any(task.dedup_key is not None for task in request.tasks)
    dependent = depends(request.tasks)
    small = len(request.tasks) <= ONE_STATEMENT and not keyed and not dependent
    submission = _Submission(
        group=task_group_id,
        key=request.idempotency_key,
        part=request.part,
        digest=_digest(columns.specs, request.tasks if dependent else ()),
        most=store.queue_limits.per_group,
        tasks=request.tasks,
        columns=columns,
    )
    _check_key(request.idempotency_key)
    answer = None
    try:
        if request.require_worker or any(task.named_task is not None for task in request.tasks):
            submission = await _for_services(database, submission, request.require_worker)
        await check_queue_limits(store, task_group_id, len(request.tasks))
        if small:
            answer = await _in_one_statement(database, submission)
        elif dependent:
            answer = await _with_dependencies(store, submission)
        else:
            answer = await _in_transaction(database, submission)
    except (QueueFull, NoWorkersAvailable):
        if not await _is_known(database, submission):
            raise
    answer = answer or await _replay(database, submission)
    if not asks_for_latest(request.tasks):
        return answer
    async with database.connection() as connection:
        return await exact_names(connection, answer)


async def _for_services(
    database: Database, submission: _Submission, require_worker: bool
) -> _Submission:
    """Return the submission with exact versions and the numbers of its named tasks.

    Its digest stays that of the tasks as they were given: repeated, it is the same submission.
    """
    async with database.connection() as connection:
        tasks, numbers = await named_tasks_of(
            connection, submission.group, submission.tasks, require_worker
        )
    columns = submission.columns if tasks is submission.tasks else _columns(tasks)
    return replace(submission, tasks=tasks, columns=columns, named_tasks=numbers)


async def submit_within(
    connection: Connection,
    most: int,
    task_group_id: UUID,
    tasks: Sequence[SubmittedTask],
    step: int | None = None,
) -> SubmitAnswer:
    """Submit without a key in the caller's transaction; ``group_live`` stays locked until its end.

    Args:
        connection: that of the transaction.
        most: limit on the unfinished tasks of the group.
        task_group_id: where they go.
        tasks: to submit.
        step: the number of the step of a run that they belong to; their ends are noted for it.

    Raises:
        NotFound, TaskGroupClosed, InvalidRequest, QueueFull, UpgradeInProgress: as :func:`submit_tasks`.
    """
    submission = _Submission(
        group=task_group_id,
        key=None,
        part=0,
        digest=b"",
        most=most,
        tasks=tasks,
        columns=_columns(tasks),
        named_tasks=await named_task_ids(connection, task_group_id, tasks),
        step=step,
    )
    parents = None
    if depends(tasks):
        await require_task_state(connection, BLOCKED)
    if depends(tasks) or step is not None:
        parents = await lock_parents(connection, Submitted(task_group_id, None, 0, tasks))
    parameters = submission.parameters()
    payload = await fetch_one(connection, _Payload, SQL["submit_payload"], parameters)
    live = await fetch_one(connection, _LockedGroup, SQL["submit_lock"], parameters)
    live = require_task_group(live, task_group_id)
    _check_accepts(submission, live)
    if parents is not None:
        return await _enqueue_dependent(connection, submission, parents, _ids(payload))
    return await _enqueue(connection, submission, live.group_id, _ids(payload))


async def _in_one_statement(database: Database, submission: _Submission) -> SubmitAnswer | None:
    """Submit in one round trip. None: the idempotency key is known."""
    count = len(submission.tasks)
    parameters = submission.parameters(count=count)
    async with database.pipelined_transaction() as connection:
        await connection.execute(BY_INDEX, prepare=True)
        await connection.execute(SQL["submit_lock"], parameters, prepare=True)
        cursor = await connection.execute(SQL["submit"], parameters, prepare=True)
    found = require_task_group(await cursor.fetchone(), submission.group)
    row = to_record(found, _Submitted)
    if row.created:
        return SubmitAnswer(task_ids=row.task_ids or [], created=count)
    if (row.kind == SERVICE) != submission.named:
        raise wrong_kind(named=submission.named)
    if not row.accepts and not await _is_known(database, submission):
        if row.unfinished + count > submission.most:
            raise queue_full(IN_GROUP, row.unfinished, submission.most)
        raise _closed(submission.group, row.state)
    return None


async def _in_transaction(database: Database, submission: _Submission) -> SubmitAnswer | None:
    """Submit payload first, queue second. None: the idempotency key is known."""
    if await _is_known(database, submission):
        return None
    parameters = submission.parameters()
    async with database.transaction() as connection:
        payload = await fetch_one(connection, _Payload, SQL["submit_payload"], parameters)
        live = await fetch_one(connection, _LockedGroup, SQL["submit_lock"], parameters)
        live = require_task_group(live, submission.group)
        known = await connection.execute(SQL["known_submission"], parameters)
        if await known.fetchone() is None:
            _check_accepts(submission, live)
            return await _enqueue(connection, submission, live.group_id, _ids(payload))
        # Another request with this key has committed first: delete only our payload.
        await connection.execute(SQL["drop_payload"], {"ids": number_array(_ids(payload))})
    return None


async def _with_dependencies(store: Store, submission: _Submission) -> SubmitAnswer | None:
    """Submit tasks that depend on others. None: the idempotency key is known."""
    if await _is_known(store.database, submission):
        return None
    await resolve_earlier(store, submission.group)
    parameters = submission.parameters()
    async with store.database.transaction() as connection:
        await require_task_state(connection, BLOCKED)
        payload = await fetch_one(connection, _Payload, SQL["submit_payload"], parameters)
        parents = await lock_parents(
            connection,
            Submitted(submission.group, submission.key, submission.part, submission.tasks),
        )
        live = await fetch_one(connection, _LockedGroup, SQL["submit_lock"], parameters)
        live = require_task_group(live, submission.group)
        known = await connection.execute(SQL["known_submission"], parameters)
        if await known.fetchone() is not None:
            await connection.execute(SQL["drop_payload"], {"ids": number_array(_ids(payload))})
            return None
        _check_accepts(submission, live)
        answer = await _enqueue_dependent(connection, submission, parents, _ids(payload))
    await resolve_group(store, live.group_id)
    return answer


async def _enqueue_dependent(
    connection: Connection, submission: _Submission, parents: Parents, given: Sequence[int]
) -> SubmitAnswer:
    """Queue the tasks that are no duplicates, and write what they depend on, with all groups locked."""
    keys = [task.dedup_key for task in submission.tasks]
    number = parents.group_number
    taken: dict[str, int] = {}
    if wanted := [key for key in keys if key is not None]:
        values: dict[str, object] = {"group_number": number, "dedup_keys": wanted}
        rows = await fetch_all(connection, _Duplicate, SQL["submit_duplicates"], values)
        taken = {row.dedup_key: row.id for row in rows}
    ids = [
        one if key is None else taken.setdefault(key, one)
        for one, key in zip(given, keys, strict=True)
    ]
    merged = {place for place, one in enumerate(given) if ids[place] != one}
    queued = {one for place, one in enumerate(given) if place not in merged}
    new = await new_edges(connection, parents, ids, merged)
    values = submission.parameters(
        group_number=number,
        dedup_keys=keys,
        dropped=number_array(given[place] for place in sorted(merged)),
        task_ids=number_array(ids),
        count=len(queued),
    )
    await add_edges(connection, parents, new, queued, given, values)
    await connection.execute(SQL["submit_count"], values)
    ignored = [place for place in sorted(merged) if submission.tasks[place].depends_on]
    return SubmitAnswer(task_ids=ids, created=len(queued), depends_on_ignored=ignored)


def _ids(payload: _Payload | None) -> Sequence[int]:
    return (payload and payload.task_ids) or []


def _check_accepts(submission: _Submission, live: _LockedGroup) -> None:
    if (live.kind == SERVICE) != submission.named:
        raise wrong_kind(named=submission.named)
    reopens = live.state is TaskGroupState.CLOSED and live.reopen_on_submit and not live.discarding
    if live.state is not TaskGroupState.OPEN and not reopens:
        raise _closed(submission.group, live.state)
    if live.unfinished + len(submission.tasks) > submission.most:
        raise queue_full(IN_GROUP, live.unfinished, submission.most)


async def _enqueue(
    connection: Connection, submission: _Submission, group_number: int, ids: Sequence[int]
) -> SubmitAnswer:
    """Queue, resolve duplicates, count and notify, under the lock of ``group_live``."""
    keys = [task.dedup_key for task in submission.tasks]
    values = submission.parameters(
        group_number=group_number, ids=number_array(ids), dedup_keys=keys
    )
    rows = await fetch_all(connection, _Queued, SQL["submit_queue"], values)
    queued = {row.id for row in rows}
    dropped = [task_id for task_id in ids if task_id not in queued]
    answer_ids = list(ids)
    if dropped:
        wanted = [key for key in keys if key is not None]
        parameters = {"group_number": group_number, "dedup_keys": wanted}
        found = await fetch_all(connection, _Duplicate, SQL["submit_duplicates"], parameters)
        unfinished = {row.dedup_key: row.id for row in found}
        answer_ids = [
            task_id if task_id in queued or key is None else unfinished[key]
            for task_id, key in zip(ids, keys, strict=True)
        ]
    values |= {
        "dropped": number_array(dropped),
        "task_ids": number_array(answer_ids),
        "count": len(queued),
    }
    await connection.execute(SQL["submit_count"], values)
    return SubmitAnswer(task_ids=answer_ids, created=len(queued))


async def _replay(database: Database, submission: _Submission) -> SubmitAnswer:
    """Return the earlier answer to this part."""
    async with database.connection() as connection:
        known = await fetch_one(
            connection, _Known, SQL["known_submission"], submission.parameters()
        )
    known = require_task_group(
        known, submission.group
    )  # the group was deleted since, with its keys
    if known.digest != submission.digest:
        raise IdempotencyKeyReused(
            "other tasks were submitted under this idempotency key before; nothing is submitted now:"
            " use another key",
            field="idempotency_key",
            part=submission.part,
        )
    return SubmitAnswer(task_ids=known.task_ids, created=known.created, replayed=True)


async def _is_known(database: Database, submission: _Submission) -> bool:
    if submission.key is None:
        return False
    async with database.connection() as connection:
        cursor = await connection.execute(SQL["known_submission"], submission.parameters())
        return await cursor.fetchone() is not None


def _digest(specs: Sequence[str], dependent: Sequence[SubmittedTask] = ()) -> bytes:
    """Return a hash of the tasks; a spec as JSON holds no newline, so the join is unambiguous.

    ``dependent``: the tasks, if some depend on others.
    """
    parts = list(specs)
    if dependent:
        parts.append(msgspec.json.encode([task.depends_on for task in dependent]).decode())
    return hashlib.sha256("\n".join(parts).encode()).digest()


def _closed(task_group_id: UUID, state: TaskGroupState) -> TaskGroupClosed:
    return TaskGroupClosed(
        f"the task group is {state} and accepts no tasks",
        task_group_id=str(task_group_id),
        state=state.value,
    )


def _check_key(key: str | None) -> None:
    if key is not None and "\0" in key:
        raise InvalidRequest("must not contain a NUL byte", field="idempotency_key")


def _columns(tasks: Sequence[SubmittedTask]) -> _Columns:
    """Check the tasks and lay them out as one array per column.

    Raises:
        TooLarge, InvalidRequest: naming the task by index.
    """
    if len(tasks) > MAX_TASKS_PER_SUBMIT:
        raise TooLarge(
            f"one submission takes at most {MAX_TASKS_PER_SUBMIT} tasks and this has {len(tasks)};"
            " send parts under one idempotency_key, as the submit of the SDK does",
            field="tasks",
            limit=MAX_TASKS_PER_SUBMIT,
        )
    specs = []
    for index, task in enumerate(tasks):
        check_submission(task, f"tasks[{index}]")
        if task.depends_on:  # kept as edges
            task = msgspec.structs.replace(task, depends_on=[])
        specs.append(encode_submission(task, f"tasks[{index}]").decode())
    return _Columns(
        specs=specs,
        priorities=number_array(task.priority for task in tasks),
        max_attempts=number_array(task.retry.max_attempts for task in tasks),
        delays=number_array(min(task.retry.delay_seconds, 1e9) for task in tasks),
        exit_codes=[_exit_codes(task) for task in tasks],
    )


def _exit_codes(task: SubmittedTask) -> str | None:
    codes = task.retry.exit_codes
    # Wider numbers are no exit status of any process, so they can never match.
    return None if codes is None else number_array(c for c in codes if abs(c) < 2**31)
