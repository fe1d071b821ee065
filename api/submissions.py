"""What is wrong with submitted tasks beyond their types: counts, sizes, characters, meaning."""

from collections.abc import Sequence

import msgspec

from api.bodies import holds_nul
from mitosis.contracts.errors import InvalidRequest, TooLarge
from mitosis.contracts.task import (
    MAX_SPEC_BYTES,
    MAX_TASKS_PER_SUBMIT,
    TaskSubmission,
    check_submission,
)


def check_tasks(tasks: Sequence[TaskSubmission], raw: bytes) -> None:
    """Check the tasks of one body up to the first error; ``raw`` is the body they came from.

    Raises:
        InvalidRequest: naming the field, as ``tasks[3].command``.
        TooLarge: more than 10,000 tasks, or one of more than 1 MB.
    """
    if not tasks:
        raise InvalidRequest("must hold at least one task", field="tasks")
    if len(tasks) > MAX_TASKS_PER_SUBMIT:
        raise TooLarge(
            f"one call takes at most {MAX_TASKS_PER_SUBMIT} tasks and this has {len(tasks)}; send"
            " parts under one idempotency_key, as the submit of the SDK does",
            field="tasks",
            limit=MAX_TASKS_PER_SUBMIT,
        )
    # Looking at each task again as text is for the bodies that need it.
    closely = len(raw) > MAX_SPEC_BYTES or holds_nul(raw)
    for index, task in enumerate(tasks):
        check_submission(task, f"tasks[{index}]")
        if closely:
            _check_text(msgspec.json.encode(task), f"tasks[{index}]")


def _check_text(spec: bytes, field: str) -> None:
    if len(spec) > MAX_SPEC_BYTES:
        raise TooLarge(
            f"a task may have {MAX_SPEC_BYTES} bytes and this one has {len(spec)}; put the data"
            " into a file or an object and pass its name",
            field=field,
            limit_bytes=MAX_SPEC_BYTES,
        )
    if holds_nul(spec):
        raise InvalidRequest("must not contain a NUL character", field=field)
