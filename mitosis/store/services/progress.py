"""Progress and checkpoints of the attempts that worker services execute (protocol P10)."""

from dataclasses import dataclass
from uuid import UUID

import msgspec

from mitosis.contracts.errors import InvalidRequest, TooLarge
from mitosis.contracts.ids import parse_task_uuid
from mitosis.contracts.json_depth import is_deeper, too_deep_text
from mitosis.contracts.service_tasks import (
    MAX_CHECKPOINT_BYTES,
    ProgressStatus,
    RecordProgress,
    RecordProgressAnswer,
    TaskProgress,
)
from mitosis.store.pg.arrays import number_array
from mitosis.store.pg.rows import fetch_all
from mitosis.store.pg.statements import load
from mitosis.store.services.contact import check_registered
from mitosis.store.services.report import TASK_ID_VERSION
from mitosis.store.store import Store

SQL = load("services/progress.sql")
_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class _Recorded:
    place: int


async def record_progress(
    store: Store, worker_uuid: UUID, request: RecordProgress
) -> RecordProgressAnswer:
    """Store what running attempts say; an attempt that does not count any more stores nothing.

    Of two statements about one attempt in one call the first counts.

    Raises:
        InvalidRequest, TooLarge: a checkpoint cannot be stored.
        WorkerNotRegistered: the registration is over: register again.
        Superseded: a later process has registered.
    """
    for place, one in enumerate(request.progress):
        _check(place, one)
    named = [
        (place, one, parse_task_uuid(one.task_id))
        for place, one in enumerate(request.progress)
        if one.task_id.version == TASK_ID_VERSION
    ]
    statuses = [ProgressStatus.SUPERSEDED] * len(request.progress)
    values = {
        "worker": worker_uuid,
        "groups": number_array(group for _, _, (group, _) in named),
        "ids": number_array(task for _, _, (_, task) in named),
        "attempts": number_array(one.attempt for _, one, _ in named),
        "fractions": [one.fraction for _, one, _ in named],
        "stages": [one.stage for _, one, _ in named],
        "messages": [one.message for _, one, _ in named],
        "checkpoints": [_text(one) for _, one, _ in named],
    }
    async with store.database.transaction() as connection:
        await check_registered(connection, worker_uuid, request.incarnation)
        rows = await fetch_all(connection, _Recorded, SQL["record_progress"], values)
    for row in rows:
        statuses[named[row.place - 1][0]] = ProgressStatus.RECORDED
    return RecordProgressAnswer(statuses=statuses)


def _check(place: int, one: TaskProgress) -> None:
    if one.checkpoint is None:
        return
    field, raw = f"progress[{place}].checkpoint", _encode(one.checkpoint)
    if len(raw) > MAX_CHECKPOINT_BYTES:
        raise TooLarge(
            f"a checkpoint has at most {MAX_CHECKPOINT_BYTES} bytes of JSON, not {len(raw)}",
            field=field,
            limit=MAX_CHECKPOINT_BYTES,
        )
    if is_deeper(raw):
        raise InvalidRequest(f"the checkpoint {too_deep_text()}", field=field)


def _text(one: TaskProgress) -> str | None:
    return None if one.checkpoint is None else _encode(one.checkpoint).decode()
