"""Creates the task group of a program from a spec, a name or nothing, or uses an existing one."""

import re
import secrets
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from mitosis.client.port import GroupCalls
from mitosis.client.program import search_path
from mitosis.client.repeating import repeating
from mitosis.contracts.allocation import WorkerAllocationPlan
from mitosis.contracts.checked_model import refused
from mitosis.contracts.checking import shown
from mitosis.contracts.errors import AlreadyExists, InvalidRequest, Unavailable
from mitosis.contracts.http import TaskGroupInfo, TaskGroupSpec

GroupArgument = TaskGroupSpec | TaskGroupInfo | str | None


@dataclass(frozen=True, slots=True)
class Planned:
    """A group to create, or an existing one."""

    group: TaskGroupSpec | TaskGroupInfo
    is_ours: bool = False
    """The name was generated, so no other program uses it."""


def planned(wanted: GroupArgument, workers: int | None) -> Planned:
    """Fill in the name, the workers, and their import path (this program's).

    A group of the kind ``service`` has no workers; its spec is used as it is.

    Raises:
        InvalidRequest: names ``group`` or ``workers`` and what would be right.
    """
    if isinstance(wanted, TaskGroupInfo):
        if workers is not None:
            raise InvalidRequest("cannot be set for an existing group", field="workers")
        return Planned(wanted)
    spec = wanted if isinstance(wanted, TaskGroupSpec) else _named(wanted)
    if spec.kind == "service":
        if workers is not None:
            raise InvalidRequest(
                "has no effect on a task group of the kind service, whose tasks worker services execute",
                field="workers",
            )
        return Planned(spec)
    plan = spec.worker_allocation_plan
    changes: dict[str, Any] = {}
    if workers is not None:
        changes["worker_count"] = workers
    if "python_path" not in plan.model_fields_set:
        changes["python_path"] = search_path()
    fields = {**plan.model_dump(exclude_unset=True), **changes}
    try:
        plan = WorkerAllocationPlan.model_validate(fields)
    except ValidationError as error:
        raise refused(error, names={"worker_count": "workers"}) from None
    return Planned(spec.model_copy(update={"worker_allocation_plan": plan}), wanted is None)


def _named(wanted: object) -> TaskGroupSpec:
    if not isinstance(wanted, str | None):
        raise InvalidRequest(
            f"must be a name, a TaskGroupSpec or the info of a group, not {shown(wanted)}",
            field="group",
        )
    try:
        return TaskGroupSpec.model_validate({"name": _new_name() if wanted is None else wanted})
    except ValidationError as error:
        raise refused(error, names={"name": "group"}) from None


async def created(client: GroupCalls, plan: Planned) -> TaskGroupInfo:
    """Create the group, or get the existing one. Creation is retried while the API is unavailable.

    Raises:
        AlreadyExists: the name is taken.
    """
    spec, asked = plan.group, False
    if isinstance(spec, TaskGroupInfo):
        return await client.group(spec.task_group_id)

    async def once() -> TaskGroupInfo:
        nonlocal asked
        try:
            return await client.create_group(spec)
        except AlreadyExists as error:
            if asked and plan.is_ours:  # created by a request whose answer was lost
                return await client.group(_path(spec))
            if asked:
                error.add_note(
                    "an earlier try of this program, without an answer, may have made it"
                )
            raise
        except Unavailable:
            asked = True
            raise

    return await repeating(once, client.give_up_after)


def _path(spec: TaskGroupSpec) -> str:
    return f"{spec.group_name}/{spec.name}" if spec.group_name else spec.name


def _new_name() -> str:
    """Return a name of program, time and random digits, as in ``sweep-1128-0315-3fa2c1``."""
    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", Path(sys.argv[0] if sys.argv else "").stem).strip("-._")
    now = datetime.now(UTC).strftime("%m%d-%H%M")
    return f"{stem[:60] or 'python'}-{now}-{secrets.token_hex(3)}"
