"""Submitting tasks (protocol P11): all or nothing, once per idempotency key, once per dedup key.

A small batch without dedup keys is one statement after the lock, in one round trip. A large one
writes its payload first, without a lock, and one with dedup keys needs to know the unfinished tasks
that have them: those are a short transaction. Everything about ``group_live`` comes last in both.
"""

import hashlib
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from psycopg.rows import DictRow

from mitosis.contracts.errors import (
    IdempotencyKeyReused,
    InvalidRequest,
    NotFound,
    QueueFull,
    TaskGroupClosed,
    TooLarge,
)
from mitosis.contracts.task import (
    MAX_TASKS_PER_SUBMIT,
    SubmittedTask,
    check_submission,
    encode_submission,
)
from mitosis.contracts.wire import SubmitAnswer, SubmitTasks
from mitosis.store.pg.arrays import number_array
from mitosis.store.pg.database import Connection, Database
from mitosis.store.pg.statements import load
from mitosis.store.store import Store
from mitosis.store.tasks.queue_limits import check_queue_limits, queue_full

SQL = load("tasks/tasks.sql")
ONE_STATEMENT = 500
"""Up to this many tasks the payload is written under the lock too: one round trip, no transaction."""


async def submit(store: Store, task_group_id: UUID, request: SubmitTasks) -> SubmitAnswer:
    """See :meth:`mitosis.store.tasks.tasks.TaskStore.submit`."""
    database = store.database
    columns = _columns(request.tasks)
    keyed = any(task.dedup_key is not None for task in request.tasks)
    small = len(request.tasks) <= ONE_STATEMENT and not keyed
    parameters = {
        "group": task_group_id,
        "key": request.idempotency_key,
        "part": request.part,
        "digest": _digest(columns["specs"]),
        "most": store.queue_limits.per_group,
        **columns,
    }
    _check_key(request.idempotency_key)
    try:
        await check_queue_limits(store, task_group_id, len(request.tasks))
    except QueueFull:
        if not await _is_known(database, parameters):
            raise
        return await _replayed(database, parameters)
    if small:
        answer = await _in_one_statement(database, parameters, len(request.tasks))
    else:
        answer = await _in_transaction(database, parameters, request.tasks)
    return answer or await _replayed(database, parameters)


async def _in_one_statement(
    database: Database, parameters: dict[str, Any], count: int
) -> SubmitAnswer | None:
    """None: the idempotency key is known."""
    async with database.pipelined_transaction() as connection:
        await connection.execute(SQL["submit_lock"], parameters)
        cursor = await connection.execute(SQL["submit"], {**parameters, "count": count})
    row = await cursor.fetchone()
    if row is None:
        raise NotFound("no such task group", task_group_id=str(parameters["group"]))
    if row["created"]:
        return SubmitAnswer(task_ids=row["task_ids"] or [], created=count)
    if not row["accepts"] and not await _is_known(database, parameters):
        if row["unfinished"] + count > parameters["most"]:
            raise queue_full("in the group", row["unfinished"], parameters["most"])
        raise _closed(parameters["group"], row["state"])
    return None


async def _in_transaction(
    database: Database, parameters: dict[str, Any], tasks: Sequence[SubmittedTask]
) -> SubmitAnswer | None:
    """None: the idempotency key is known."""
    if await _is_known(database, parameters):
        return None
    async with database.transaction() as connection:
        row = await (await connection.execute(SQL["submit_payload"], parameters)).fetchone()
        ids: list[int] = (row and row["task_ids"]) or []
        live = await (await connection.execute(SQL["submit_lock"], parameters)).fetchone()
        if live is None:
            raise NotFound("no such task group", task_group_id=str(parameters["group"]))
        known = await connection.execute(SQL["known_submission"], parameters)
        if await known.fetchone() is None:
            _check_accepts(parameters["group"], live)
            if live["unfinished"] + len(tasks) > parameters["most"]:
                raise queue_full("in the group", live["unfinished"], parameters["most"])
            return await _enqueue(connection, live["group_id"], parameters, ids, tasks)
        # Another request with the key came first and has committed: only our payload is to go.
        await connection.execute(SQL["drop_payload"], {"ids": number_array(ids)})
    return None


async def submit_within(
    connection: Connection, most: int, task_group_id: UUID, tasks: Sequence[SubmittedTask]
) -> SubmitAnswer:
    """A submission without a key, in the caller's transaction; it locks ``group_live`` from here on.

    ``most`` tasks may be unfinished in the group.

    Raises:
        NotFound, TaskGroupClosed, QueueFull: as :func:`submit`.
    """
    columns = _columns(tasks)
    parameters = {"group": task_group_id, "key": None, "part": 0, "digest": b"", "most": most}
    parameters |= columns
    row = await (await connection.execute(SQL["submit_payload"], parameters)).fetchone()
    live = await (await connection.execute(SQL["submit_lock"], parameters)).fetchone()
    if live is None:
        raise NotFound("no such task group", task_group_id=str(task_group_id))
    _check_accepts(task_group_id, live)
    if live["unfinished"] + len(tasks) > most:
        raise queue_full("in the group", live["unfinished"], most)
    ids: list[int] = (row and row["task_ids"]) or []
    return await _enqueue(connection, live["group_id"], parameters, ids, tasks)


def _check_accepts(task_group_id: UUID, live: DictRow) -> None:
    reopens = live["state"] == "closed" and live["reopen_on_submit"] and not live["discarding"]
    if live["state"] != "open" and not reopens:
        raise _closed(task_group_id, live["state"])


async def _enqueue(
    connection: Connection,
    group_number: int,
    parameters: dict[str, Any],
    ids: Sequence[int],
    tasks: Sequence[SubmittedTask],
) -> SubmitAnswer:
    """Under the lock of group_live: queue, resolve duplicates, count, tell."""
    keys = [task.dedup_key for task in tasks]
    values = {
        **parameters,
        "group_number": group_number,
        "ids": number_array(ids),
        "dedup_keys": keys,
    }
    queued = {
        row["id"]
        for row in await (await connection.execute(SQL["submit_queue"], values)).fetchall()
    }
    dropped = [task_id for task_id in ids if task_id not in queued]
    answer_ids = list(ids)
    if dropped:
        cursor = await connection.execute(
            SQL["submit_duplicates"],
            {"group_number": group_number, "dedup_keys": [key for key in keys if key is not None]},
        )
        live = {row["dedup_key"]: row["id"] for row in await cursor.fetchall()}
        answer_ids = [
            task_id if task_id in queued or key is None else live[key]
            for task_id, key in zip(ids, keys, strict=True)
        ]
    await connection.execute(
        SQL["submit_count"],
        {
            **values,
            "dropped": number_array(dropped),
            "task_ids": number_array(answer_ids),
            "count": len(queued),
        },
    )
    return SubmitAnswer(task_ids=answer_ids, created=len(queued))


async def _replayed(database: Database, parameters: dict[str, Any]) -> SubmitAnswer:
    async with database.connection() as connection:
        row = await (await connection.execute(SQL["known_submission"], parameters)).fetchone()
    if row is None:  # deleted with its group since
        raise NotFound("no such task group", task_group_id=str(parameters["group"]))
    if bytes(row["digest"]) != parameters["digest"]:
        raise IdempotencyKeyReused(
            "other tasks were submitted under this idempotency key before; nothing is submitted now:"
            " use another key",
            field="idempotency_key",
            part=parameters["part"],
        )
    return SubmitAnswer(task_ids=row["task_ids"], created=row["created"], replayed=True)


def _digest(specs: Sequence[str]) -> bytes:
    """Tells submissions apart. A spec as JSON holds no newline."""
    return hashlib.sha256("\n".join(specs).encode()).digest()


async def _is_known(database: Database, parameters: dict[str, Any]) -> bool:
    if parameters["key"] is None:
        return False
    async with database.connection() as connection:
        cursor = await connection.execute(SQL["known_submission"], parameters)
        return await cursor.fetchone() is not None


def _closed(task_group_id: UUID, state: str) -> TaskGroupClosed:
    return TaskGroupClosed(
        f"the task group is {state} and accepts no tasks",
        task_group_id=str(task_group_id),
        state=state,
    )


def _check_key(key: str | None) -> None:
    if key is not None and "\0" in key:
        raise InvalidRequest("must not contain a NUL byte", field="idempotency_key")


def _columns(tasks: Sequence[SubmittedTask]) -> dict[str, Any]:
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
        specs.append(encode_submission(task, f"tasks[{index}]").decode())
    return {
        "specs": specs,
        "priorities": number_array(task.priority for task in tasks),
        "max_attempts": number_array(task.retry.max_attempts for task in tasks),
        "delays": number_array(min(task.retry.delay_seconds, 1e9) for task in tasks),
        "exit_codes": [_exit_codes(task) for task in tasks],
    }


def _exit_codes(task: SubmittedTask) -> str | None:
    codes = task.retry.exit_codes
    # Wider numbers are no exit status of any process, so they can never match.
    return None if codes is None else number_array(c for c in codes if abs(c) < 2**31)
