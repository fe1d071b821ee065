"""Which tasks a group takes: those of worker services only named ones, those of hosts none of them."""

import asyncio
from typing import Any
from uuid import uuid4

import pytest

from mitosis.contracts.errors import InvalidRequest, MitosisError, NotFound
from mitosis.contracts.task import TaskSubmission
from tests.support.campaigns import World, world
from tests.support.worker_services import service_group, submit_named

NAMED: dict[str, Any] = {"named_task": "images/resize@1"}
COMMAND: dict[str, Any] = {"command": ["true"]}


async def gaps(w: World, namespace: str) -> int:
    return int(await w.value("SELECT count(*) FROM named_tasks WHERE namespace = %s", namespace))


@pytest.mark.parametrize(
    ("kind", "tasks", "error", "rule", "field"),
    [
        ("service", [COMMAND], InvalidRequest, "executed by worker services", 0),
        ("managed", [NAMED], InvalidRequest, "runs on hosts", 0),
        ("service", [NAMED, COMMAND], InvalidRequest, "this one needs one too", 1),
        ("managed", [COMMAND, NAMED], InvalidRequest, "this one needs one too", 0),
        (None, [NAMED], NotFound, "task group", None),
    ],
)
async def test_tasks_that_the_group_does_not_take_are_refused_and_leave_no_gap(
    database: str,
    kind: str | None,
    tasks: list[dict[str, Any]],
    error: type[MitosisError],
    rule: str,
    field: int | None,
) -> None:
    async with world(database) as w:
        group = await w.group(kind=kind) if kind else uuid4()
        with pytest.raises(error, match=rule) as refused:
            await w.submit_tasks(group, [TaskSubmission(**one) for one in tasks])
        expected = None if field is None else f"tasks[{field}].named_task"
        assert refused.value.facts.get("field") == expected
        assert await gaps(w, "images") == await w.value("SELECT count(*) FROM task") == 0


async def test_a_name_that_no_service_supports_is_one_gap(database: str) -> None:
    async with world(database) as w:
        group = await service_group(w)
        await asyncio.gather(*(submit_named(w, group, 2, "unheard/of@1") for _ in range(5)))
        await submit_named(w, group, 1, "unheard/of@2")
        assert await gaps(w, "unheard") == 2
