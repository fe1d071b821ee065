"""The event loop of handlers: one that ends it ends no other; how it is lost."""

import asyncio
import gc
import selectors
import shutil
import sys
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from mitosis.contracts.attempt import AttemptKey
from mitosis.contracts.outcome import FailureKind
from mitosis.contracts.run_spec import RunSpec
from mitosis.execution.events import Stop
from mitosis.worker.report import Ended
from mitosis.worker_service.coroutines import CoroutineThread, HandlerRun
from tests.support.coroutine_stage import VARIABLES, Gate, detail, stage
from tests.support.waiting import wait_until_async


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
        it.cancel(1)
        assert (it.slots.lost, it.slots.blocked, it.reports) == (True, False, [])
    _release(it.slots._thread._loop)


async def test_each_attempt_that_a_handler_cancels_is_reported_once(tmp_path: Path) -> None:
    gate, calls = Gate(), list[int]()
    lost: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, it: lost.append(str(it)))

    async def cancels() -> None:
        calls.append(1)
        await _cancels_all()

    async with stage(tmp_path, cancels=cancels, wait=gate.wait) as it:
        it.submit("wait", task_id=1)
        await wait_until_async(lambda: gate.inside == 1)
        it.submit("cancels", task_id=2)
        await it.reported(2)
        gate.open.set()
        it.submit("wait", task_id=3)
        it.submit("wait", task_id=4)
        await it.reported(4)
        assert sorted(one.task_id for one in it.reports) == [1, 2, 3, 4]
    assert (lost, calls) == ([], [1]), "what has begun does not begin again"


class _Odd(BaseException):
    def __repr__(self) -> str:
        raise ValueError("no words")


async def _exits_without_words() -> None:
    sys.exit(_Odd())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("handler", "variables", "kind", "text"),
    [
        ("waits", {"MITOSIS_TASK_UUID": "x"}, "not_started", "badly formed hexadecimal UUID"),
        ("waits", {"MITOSIS_CONFIGURATION": "{"}, "not_started", "Expecting property name"),
        ("unknown", {}, "not_started", "KeyError: 'unknown'"),
        ("exits", {}, "handler_error", "its end could not be described: ValueError: no words"),
    ],
)
async def test_an_attempt_is_reported_also_if_the_code_around_its_handler_fails(
    tmp_path: Path, handler: str, variables: dict[str, str], kind: str, text: str
) -> None:
    gate = Gate()
    gate.open.set()
    async with stage(tmp_path, count=1, waits=gate.wait, exits=_exits_without_words) as it:
        it.submit(handler, task_id=1, variables=VARIABLES | variables)
        it.submit("waits", task_id=2)
        first, second = await it.reported(2)
        assert (first.task_id, first.kind, second.outcome) == (1, kind, "succeeded")
        assert text in detail(first)["message"]
        assert first.started_at is not None


async def test_a_folder_that_cannot_be_removed_keeps_no_result_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_deep(*_: object, **__: object) -> None:
        raise RecursionError

    monkeypatch.setattr(shutil, "rmtree", too_deep)
    gate = Gate()
    gate.open.set()
    async with stage(tmp_path, waits=gate.wait) as it:
        it.submit("waits")
        (report,) = await it.reported()
        assert report.outcome == "succeeded"


async def test_what_is_cancelled_before_its_first_step_never_begins(tmp_path: Path) -> None:
    """Also if that step comes before the cancel in the queue of an event loop that was blocked."""
    inside, opened = threading.Event(), threading.Event()
    begun, ended, runs = list[int](), list[Ended](), list[HandlerRun]()

    async def begin() -> None:
        begun.append(1)

    thread = CoroutineThread({"begin": begin}, tmp_path)
    loop = thread._loop

    def block() -> None:
        inside.set()
        opened.wait(30)

    def arrange() -> None:
        loop.call_soon(loop.call_soon, block)
        spec = RunSpec(handler="begin", variables=VARIABLES)
        runs.append(thread.run(AttemptKey(1, 1), spec, ended.append))

    thread.start(lambda: None)
    loop.call_soon_threadsafe(arrange)
    await wait_until_async(inside.is_set)
    runs[0].cancel("not now")
    opened.set()
    await wait_until_async(lambda: ended)
    await asyncio.to_thread(thread.close)
    assert begun == []
    assert [(one.kind, one.message) for one in ended] == [(FailureKind.CANCELLED, "not now")]
