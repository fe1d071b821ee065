"""What a run does to each task on its way to the API."""

import json
from collections.abc import Callable, Mapping
from typing import Any
from uuid import uuid4

import httpx2
import msgspec
import pytest

from mitosis.cli.run.feeding import Feeder
from mitosis.cli.run.runner import RunPlan
from mitosis.cli.run.sources import from_values
from mitosis.cli.run.template import Template
from mitosis.client.client import Client
from mitosis.contracts.http import TaskGroupSpec
from mitosis.contracts.task import RetryPolicy, TaskSpec

COUNT = 500


class TaskCounter:
    """Stands before an encoder and counts the tasks that go through it."""

    def __init__(self) -> None:
        self.count = 0

    def before(self, encode: Callable[..., Any]) -> Callable[..., Any]:
        def counting(value: Any, *arguments: Any, **options: Any) -> Any:
            fields = isinstance(value, Mapping) and "command" in value
            self.count += isinstance(value, TaskSpec) or fields
            return encode(value, *arguments, **options)

        return counting


async def test_each_task_is_encoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    bodies: list[Any] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        bodies.append(json.loads(request.content))
        ids = list(range(len(bodies[-1]["tasks"])))
        return httpx2.Response(201, json={"task_ids": ids, "created": len(ids)})

    counter = TaskCounter()
    for name in ("json.encode", "to_builtins"):
        where, _, function = name.rpartition(".")
        module = getattr(msgspec, where) if where else msgspec
        monkeypatch.setattr(module, function, counter.before(getattr(module, function)))
    plan = RunPlan(
        spec=TaskGroupSpec(name="a"),
        template=Template.parse(["echo", "{}"]),
        source=from_values([f"input {n}" for n in range(COUNT)]),
        task_fields={"timeout_seconds": 5.0, "retry": RetryPolicy(max_attempts=2)},
    )
    async with Client("http://127.0.0.1:9", transport=httpx2.MockTransport(answer)) as client:
        feeder = Feeder(client, plan.source, plan.build_task)
        await feeder.read_first()
        await feeder.run(uuid4())
    sent = [task for body in bodies for task in body["tasks"]]
    assert [task["command"] for task in sent] == [["echo", f"input {n}"] for n in range(COUNT)]
    assert counter.count == COUNT
