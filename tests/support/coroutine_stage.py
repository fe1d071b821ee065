"""Slots of `async def` handlers, with an API and a reporter in memory."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from mitosis.contracts.attempt import AttemptKey
from mitosis.contracts.errors import Superseded as SupersededError
from mitosis.contracts.run_spec import RunSpec
from mitosis.contracts.wire import (
    ClaimAnswer,
    ClaimedTask,
    ClaimTasks,
    LeaseStanding,
    StopOrder,
    TaskReport,
)
from mitosis.execution.events import StopsOrdered
from mitosis.ipc.messages import EncodedReport
from mitosis.worker_service.coroutine_slots import CoroutineSlots
from mitosis.worker_service.coroutines import CoroutineThread
from tests.support.waiting import wait_until_async

VARIABLES = {
    "MITOSIS_TASK_UUID": "8b7e0b1e-0000-8000-8000-000000000001",
    "MITOSIS_TASK_GROUP_NAME": "thumbnails",
    "MITOSIS_NAMED_TASK": "images/resize@1",
    "MITOSIS_CONFIGURATION": '{"size": 300}',
    "MITOSIS_CONFIGURATION_VERSION": "4",
}


@dataclass
class Stage:
    """Slots with an API that gives the tasks of a test, and a reporter that keeps reports."""

    offered: list[ClaimedTask] = field(default_factory=list)
    asked: list[int] = field(default_factory=list)
    reports: list[TaskReport] = field(default_factory=list)
    refused: bool = False
    slots: CoroutineSlots = field(init=False)

    async def claim(self, request: ClaimTasks) -> ClaimAnswer:
        if self.refused:
            raise SupersededError
        self.asked.append(request.max_tasks)
        await wait_until_async(lambda: self.offered, timeout=60)
        given = [self.offered.pop(0) for _ in range(min(request.max_tasks, len(self.offered)))]
        return ClaimAnswer(standing=LeaseStanding.ACTIVE, tasks=given)

    def add(self, number: int, reports: list[EncodedReport], urgent: bool) -> None:
        assert number == 7
        self.reports += [msgspec.json.decode(one.report, type=TaskReport) for one in reports]

    def number(self, key: AttemptKey) -> int:
        return 7

    def submit(self, handler: str, *arguments: Any, task_id: int = 0, **fields: Any) -> None:
        fields = {"arguments": list(arguments), "variables": VARIABLES} | fields
        spec = RunSpec(handler=handler, **fields)
        number = task_id or 11 + len(self.offered)
        raw = msgspec.Raw(msgspec.json.encode(spec))
        self.offered.append(ClaimedTask(task_id=number, attempt=1, spec=raw))

    def cancel(self, task_id: int, grace_seconds: float = 0.0, reason: str = "") -> None:
        order = StopOrder(task_id=task_id, attempt=1, grace_seconds=grace_seconds, reason=reason)
        self.slots.handle(StopsOrdered((order,)))

    async def reported(self, count: int = 1) -> list[TaskReport]:
        await wait_until_async(lambda: len(self.reports) >= count, on_timeout=str(self.reports))
        return self.reports


def detail(report: TaskReport) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(bytes(report.detail))
    return found


@asynccontextmanager
async def stage(
    folder: Path, count: int = 2, **functions: Callable[..., Awaitable[Any]]
) -> AsyncIterator[Stage]:
    made = Stage()

    async def room() -> None:
        """There is room."""

    thread = CoroutineThread(functions, folder / "scratch")
    made.slots = CoroutineSlots(count, made, made, made, thread, room)  # type: ignore[arg-type]
    made.slots.start()
    try:
        yield made
    finally:
        await made.slots.close()


class Gate:
    """Holds handlers until a test lets them go."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.inside = 0
        self.most = 0

    async def wait(self) -> int:
        self.inside += 1
        self.most = max(self.most, self.inside)
        try:
            while not self.open.is_set():  # noqa: ASYNC110 - another thread opens it
                await asyncio.sleep(0.002)
        finally:
            self.inside -= 1
        return 1

    async def block(self) -> int:
        """Blocks its event loop."""
        self.inside += 1
        self.open.wait(30)
        return 3

    async def deaf(self) -> int:
        """Goes on when it is cancelled."""
        self.inside += 1
        while not self.open.is_set():
            try:
                await asyncio.sleep(0.002)
            except asyncio.CancelledError:
                continue
        return 2
