"""asyncio slots: what runs at the same time, how each attempt ends, and the two ways to stop."""

import asyncio
import gc
import json
import selectors
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest

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
from mitosis.execution.events import Stop, StopsOrdered, Superseded
from mitosis.ipc.messages import EncodedReport
from mitosis.worker.context import current_task
from mitosis.worker_service import coroutine_slots
from mitosis.worker_service.coroutine_slots import CoroutineSlots
from mitosis.worker_service.coroutines import CoroutineThread, are_coroutines
from tests.support.waiting import wait_until_async


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
        spec = RunSpec(
            handler=handler,
            arguments=list(arguments),
            variables={
                "MITOSIS_TASK_UUID": "8b7e0b1e-0000-8000-8000-000000000001",
                "MITOSIS_TASK_GROUP_NAME": "thumbnails",
                "MITOSIS_NAMED_TASK": "images/resize@1",
                "MITOSIS_CONFIGURATION": '{"size": 300}',
                "MITOSIS_CONFIGURATION_VERSION": "4",
            },
            **fields,
        )
        number = task_id or 11 + len(self.offered)
        raw = msgspec.Raw(msgspec.json.encode(spec))
        self.offered.append(ClaimedTask(task_id=number, attempt=1, spec=raw))

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


async def test_a_result_and_the_task_that_the_handler_sees(tmp_path: Path) -> None:
    async def see(text: str) -> dict[str, Any]:
        task = current_task()
        (task.scratch_folder / "file").write_text(text)
        return {
            "ids": [task.task_id, task.attempt, task.task_group_name],
            "named": [task.named_task, task.configuration, task.configuration_version],
            "folder": str(task.scratch_folder),
        }

    async with stage(tmp_path, see=see) as it:
        it.submit("see", "x")
        (report,) = await it.reported()
        result = detail(report)["result"]
        assert report.outcome == "succeeded"
        assert result["ids"] == [11, 1, "thumbnails"]
        assert result["named"] == ["images/resize@1", {"size": 300}, 4]
        assert Path(result["folder"]).parent == tmp_path / "scratch"
        assert [*(tmp_path / "scratch").iterdir()] == []
        assert it.slots.held == []


async def test_no_more_run_than_there_are_slots(tmp_path: Path) -> None:
    gate = Gate()
    async with stage(tmp_path, count=2, wait=gate.wait) as it:
        for _ in range(5):
            it.submit("wait", task_id=20 + len(it.offered))
        await wait_until_async(lambda: gate.inside == 2)
        assert len(it.slots.held) == 2
        gate.open.set()
        await it.reported(5)
        assert gate.most == 2
        assert it.asked[0] == 2


@pytest.mark.parametrize(
    ("fields", "kind", "text"),
    [
        ({}, "handler_error", "ValueError: no such file"),
        ({"timeout_seconds": 0.01}, "timeout", "ran longer than its timeout of 0.01 s"),
    ],
)
async def test_a_handler_that_fails_says_how(
    tmp_path: Path, fields: dict[str, Any], kind: str, text: str
) -> None:
    async def fail(slowly: bool) -> None:
        if slowly:
            await asyncio.Event().wait()
        raise ValueError("no such file")

    async with stage(tmp_path, fail=fail) as it:
        it.submit("fail", bool(fields), **fields)
        (report,) = await it.reported()
        assert (report.outcome, report.kind) == ("failed", kind)
        assert detail(report)["message"] == text
        assert report.started_at is not None
        assert report.finished_at is not None


async def test_a_result_that_is_no_json_is_refused(tmp_path: Path) -> None:
    async def odd() -> object:
        return object()

    async with stage(tmp_path, odd=odd) as it:
        it.submit("odd")
        (report,) = await it.reported()
        assert report.kind == "result_not_storable"


async def test_a_cancelled_attempt_is_reported_as_cancelled(tmp_path: Path) -> None:
    gate = Gate()
    async with stage(tmp_path, wait=gate.wait) as it:
        it.submit("wait")
        it.submit("wait")
        await wait_until_async(lambda: gate.inside == 2)
        order = StopOrder(task_id=11, attempt=1, grace_seconds=5.0, reason="by a user")
        it.slots.handle(StopsOrdered((order,)))
        it.slots.handle(Superseded(frozenset({AttemptKey(12, 1)}), 5.0))
        first, second = sorted(await it.reported(2), key=lambda one: one.task_id)
        assert (first.outcome, detail(first)["message"]) == ("cancelled", "cancelled: by a user")
        assert second.outcome == "cancelled"


async def test_a_handler_that_goes_on_after_its_grace_is_reported_and_keeps_its_slot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coroutine_slots, "HANG_MARGIN_SECONDS", 0.01)
    gate = Gate()
    async with stage(tmp_path, count=1, deaf=gate.deaf) as it:
        it.submit("deaf")
        await wait_until_async(lambda: gate.inside == 1)
        order = StopOrder(task_id=11, attempt=1, grace_seconds=0.0, reason="")
        it.slots.handle(StopsOrdered((order,)))
        (report,) = await it.reported()
        assert detail(report)["message"] == "cancelled; the handler went on"
        it.submit("deaf", task_id=30)
        assert it.slots.held == []
        assert gate.inside == 1
        gate.open.set()
        await it.reported(2)
        assert [one.task_id for one in it.reports] == [11, 30]


async def test_a_cancel_before_the_first_step_of_a_handler_frees_its_slot(tmp_path: Path) -> None:
    gate = Gate()
    async with stage(tmp_path, count=2, block=gate.block, wait=gate.wait) as it:
        it.submit("block")
        await wait_until_async(lambda: gate.inside == 1)
        it.submit("wait", task_id=12)
        await wait_until_async(lambda: len(it.slots.held) == 2)
        order = StopOrder(task_id=12, attempt=1, grace_seconds=5.0, reason="by a user")
        it.slots.handle(StopsOrdered((order,)))
        gate.open.set()
        first, second = sorted(await it.reported(2), key=lambda one: one.task_id)
        assert (first.outcome, gate.most) == ("succeeded", 0), "the other one has not begun"
        assert (second.outcome, detail(second)["message"]) == ("cancelled", "cancelled: by a user")
        it.submit("wait", task_id=21)
        it.submit("wait", task_id=22)
        await it.reported(4)


async def _exits() -> None:
    sys.exit(1)


async def _exits_in_a_task() -> None:
    await asyncio.gather(_exits(), asyncio.sleep(0.01))


async def _interrupts_in_a_task() -> None:
    async def interrupt() -> None:
        raise KeyboardInterrupt

    await asyncio.create_task(interrupt())


async def _exits_in_a_callback() -> None:
    asyncio.get_running_loop().call_soon(sys.exit, 1)
    await asyncio.sleep(0.01)


async def _stops_its_loop() -> None:
    asyncio.get_running_loop().stop()
    await asyncio.sleep(0.01)


async def _cancels_all() -> None:
    for task in asyncio.all_tasks():
        task.cancel()


@pytest.mark.parametrize(
    ("end_it", "outcome"),
    [
        (_exits, "failed"),
        (_exits_in_a_task, "failed"),
        (_interrupts_in_a_task, "failed"),
        (_exits_in_a_callback, "succeeded"),
        (_stops_its_loop, "succeeded"),
    ],
)
async def test_a_handler_that_ends_its_event_loop_ends_no_other(
    tmp_path: Path, end_it: Callable[[], Awaitable[None]], outcome: str
) -> None:
    gate = Gate()

    async def slow() -> None:
        await asyncio.Event().wait()

    async with stage(tmp_path, count=3, end_it=end_it, wait=gate.wait, slow=slow) as it:
        it.submit("wait", task_id=1)
        it.submit("slow", task_id=2, timeout_seconds=0.05)
        await wait_until_async(lambda: gate.inside == 1)
        it.submit("end_it", task_id=3)
        await it.reported(2)
        gate.open.set()
        await it.reported(3)
        it.submit("end_it", task_id=4)
        it.submit("wait", task_id=5)
        found = {one.task_id: one.kind or one.outcome for one in await it.reported(5)}
        ended = "handler_error" if outcome == "failed" else outcome
        assert found == {1: "succeeded", 2: "timeout", 3: ended, 4: ended, 5: "succeeded"}
        said = {detail(one)["message"] for one in it.reports if one.kind == ended}
        assert said <= {"called sys.exit(1)", "KeyboardInterrupt"}
        it.slots.handle(Stop())
        await it.slots.over.wait()


async def _closes_its_selector() -> None:
    asyncio.get_running_loop()._selector.close()  # type: ignore[attr-defined]
    await asyncio.Event().wait()


async def _closes_its_loop() -> None:
    loop = asyncio.get_running_loop()
    run_again = loop.run_forever

    def closed() -> None:  # as by a thread of the handler, between two runs
        loop.close()
        run_again()

    loop.run_forever = closed  # type: ignore[method-assign]
    loop.stop()
    await asyncio.Event().wait()


def _release(loop: Any) -> None:
    """Close what is left of a lost event loop, and destroy its tasks: neither may fail other tests."""
    loop.run_forever = None
    if not loop.is_closed():
        loop._selector = selectors.DefaultSelector()
        loop.close()
    gc.collect()


# The tasks of a lost loop can no longer end: their destruction raises.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("end_it", [_closes_its_selector, _closes_its_loop])
async def test_a_lost_event_loop_ends_the_slots_without_reports(
    tmp_path: Path, end_it: Callable[[], Awaitable[None]]
) -> None:
    gate = Gate()
    async with stage(tmp_path, count=3, end_it=end_it, wait=gate.wait) as it:
        it.submit("wait", task_id=1)
        await wait_until_async(lambda: gate.inside == 1)
        it.submit("end_it", task_id=2)
        await it.slots.over.wait()
        order = StopOrder(task_id=1, attempt=1, grace_seconds=0.0, reason="")
        it.slots.handle(StopsOrdered((order,)))
        assert (it.slots.lost, it.slots.blocked, it.reports) == (True, False, [])
    _release(it.slots._thread._loop)


async def test_each_attempt_that_a_handler_cancels_is_reported_once(tmp_path: Path) -> None:
    gate = Gate()
    lost: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, it: lost.append(str(it)))
    async with stage(tmp_path, cancels=_cancels_all, wait=gate.wait) as it:
        it.submit("wait", task_id=1)
        await wait_until_async(lambda: gate.inside == 1)
        it.submit("cancels", task_id=2)
        await it.reported(2)
        gate.open.set()
        it.submit("wait", task_id=3)
        it.submit("wait", task_id=4)
        await it.reported(4)
        assert sorted(one.task_id for one in it.reports) == [1, 2, 3, 4]
    assert lost == []


async def test_a_timeout_holds_for_a_handler_that_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coroutine_slots, "HANG_MARGIN_SECONDS", 0.01)
    gate = Gate()
    async with stage(tmp_path, deaf=gate.deaf, wait=gate.wait) as it:
        it.submit("deaf", timeout_seconds=0.02, kill_grace_seconds=0)
        (report,) = await it.reported()
        text = "ran longer than its timeout of 0.02 s; the handler went on"
        assert (report.kind, detail(report)["message"]) == ("timeout", text)
        gate.open.set()
        it.submit("wait", task_id=12)
        await it.reported(2)
        assert not it.slots.over.is_set()


async def test_a_handler_that_blocks_all_others_after_its_end_ends_the_slots(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coroutine_slots, "HANG_MARGIN_SECONDS", 0.01)
    monkeypatch.setattr(coroutine_slots, "BLOCKED_SECONDS", 0.05)
    gate, ended = Gate(), list[int]()

    async def block() -> None:
        ended.append(await gate.block())

    async with stage(tmp_path, block=block, wait=gate.wait) as it:
        it.submit("wait", task_id=1)
        await wait_until_async(lambda: gate.inside == 1)
        it.submit("block", task_id=2, timeout_seconds=0.02, kill_grace_seconds=0)
        await it.slots.over.wait()
        assert (it.slots.blocked, ended) == (True, [])
        assert [(one.task_id, one.kind) for one in it.reports] == [(2, "timeout")]
        gate.open.set()


async def test_a_stop_finishes_what_runs_and_claims_nothing_more(tmp_path: Path) -> None:
    gate = Gate()
    async with stage(tmp_path, wait=gate.wait) as it:
        it.submit("wait")
        await wait_until_async(lambda: gate.inside == 1)
        it.slots.handle(Stop())
        it.submit("wait")
        gate.open.set()
        await it.slots.over.wait()
        assert [one.outcome for one in it.reports] == ["succeeded"]
        assert len(it.offered) == 1


async def test_a_forced_stop_reports_nothing_of_what_it_stops(tmp_path: Path) -> None:
    gate = Gate()
    async with stage(tmp_path, wait=gate.wait) as it:
        it.submit("wait")
        await wait_until_async(lambda: gate.inside == 1)
        it.slots.handle(Stop(kill=True, grace_seconds=1.0))
        await it.slots.over.wait()
        assert it.reports == []


async def test_a_refusal_ends_the_slots_when_what_runs_has_ended(tmp_path: Path) -> None:
    gate = Gate()
    async with stage(tmp_path, wait=gate.wait) as it:
        it.submit("wait")
        await wait_until_async(lambda: gate.inside == 1)
        it.refused = True
        it.submit("wait", task_id=12)  # answers the claim that waits
        await wait_until_async(lambda: gate.inside == 2)
        gate.open.set()
        await it.slots.over.wait()
        assert len(it.reports) == 2


def test_coroutines_are_told_from_functions() -> None:
    async def one() -> None: ...

    def other() -> None: ...

    assert are_coroutines({"one": one})
    assert not are_coroutines({"one": one, "other": other})
    assert not are_coroutines({})
