"""asyncio slots: handlers that go on after their end or block the others, each stop at each moment."""

import asyncio
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from mitosis.contracts.attempt import AttemptKey
from mitosis.execution.events import Stop, Superseded
from mitosis.worker_service import coroutine_slots
from tests.support.coroutine_stage import Gate, Stage, detail, stage
from tests.support.waiting import wait_until_async

BRIEF: dict[str, Any] = {"timeout_seconds": 0.02, "kill_grace_seconds": 0}


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coroutine_slots, "HANG_MARGIN_SECONDS", 0.01)
    monkeypatch.setattr(coroutine_slots, "BLOCKED_SECONDS", 0.02)


def timers(it: Stage) -> list[Any]:
    """The timers of the slots that are still to come."""
    scheduled = asyncio.get_running_loop()._scheduled  # type: ignore[attr-defined]
    return [
        one
        for one in scheduled
        if not one.cancelled() and getattr(one._callback, "__self__", None) is it.slots
    ]


async def looked(it: Stage, task_id: int) -> None:
    """Wait until the slots have looked several times whether this attempt blocks the others."""
    slot, seen = it.slots._taken[AttemptKey(task_id, 1)], list[object]()

    def new_timer() -> bool:
        if slot.timer not in seen:
            seen.append(slot.timer)
        return len(seen) > 4

    await wait_until_async(new_timer)


async def test_a_handler_that_goes_on_after_its_grace_is_reported_and_keeps_its_slot(
    tmp_path: Path,
) -> None:
    gate = Gate()
    async with stage(tmp_path, count=1, deaf=gate.deaf) as it:
        it.submit("deaf")
        await wait_until_async(lambda: gate.inside == 1)
        it.cancel(11)
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
        it.cancel(12, 5.0, "by a user")
        gate.open.set()
        first, second = sorted(await it.reported(2), key=lambda one: one.task_id)
        assert (first.outcome, gate.most) == ("succeeded", 0), "the other one has not begun"
        assert (second.outcome, detail(second)["message"]) == ("cancelled", "cancelled: by a user")
        it.submit("wait", task_id=21)
        it.submit("wait", task_id=22)
        await it.reported(4)


async def test_a_timeout_holds_for_a_handler_that_goes_on(tmp_path: Path) -> None:
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


async def _block(gate: Gate) -> int:
    return await gate.block()


async def _block_in_a_task(gate: Gate) -> int:
    return (await asyncio.gather(gate.block(), asyncio.sleep(0)))[0]


@pytest.mark.parametrize("block", [_block, _block_in_a_task])
@pytest.mark.parametrize("stopped", [False, True])
async def test_a_handler_that_blocks_all_others_after_its_end_ends_the_slots(
    tmp_path: Path, block: Callable[[Gate], Any], stopped: bool
) -> None:
    gate, ended = Gate(), list[int]()

    async def blocks() -> None:
        ended.append(await block(gate))

    async with stage(tmp_path, blocks=blocks, wait=gate.wait) as it:
        it.submit("wait", task_id=1)
        await wait_until_async(lambda: gate.inside == 1)
        it.submit("blocks", task_id=2, **BRIEF)
        await wait_until_async(lambda: gate.inside == 2)
        if stopped:
            it.slots.handle(Stop())
        await it.slots.over.wait()
        assert (it.slots.blocked, ended) == (True, [])
        assert [(one.task_id, one.kind) for one in it.reports] == [(2, "timeout")]
        gate.open.set()


async def test_a_handler_that_blocks_later_than_its_end_ends_the_slots(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, then = Gate(), threading.Event()

    async def deaf_then_blocks() -> None:
        while not then.is_set():
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0.002)
        await gate.block()

    async with stage(tmp_path, late=deaf_then_blocks) as it:
        it.submit("late", **BRIEF)
        await it.reported()
        await looked(it, 11)
        monkeypatch.setattr(coroutine_slots, "HANG_MARGIN_SECONDS", 0.0)
        it.cancel(11)
        await looked(it, 11)
        assert not it.slots.over.is_set()
        then.set()
        await it.slots.over.wait()
        assert it.slots.blocked
        gate.open.set()


async def test_only_what_has_ended_can_end_the_slots_by_blocking(tmp_path: Path) -> None:
    """A handler that blocks within its time delays the others; it does not end the process."""
    gate = Gate()
    async with stage(tmp_path, count=3, block=gate.block, wait=gate.wait, deaf=gate.deaf) as it:
        it.submit("deaf", task_id=1, **BRIEF)
        await wait_until_async(lambda: gate.inside == 1)
        it.submit("block", task_id=2)
        await wait_until_async(lambda: gate.inside == 2)
        it.submit("wait", task_id=3, **BRIEF)
        await it.reported()
        await looked(it, 1)
        assert [(one.task_id, one.kind) for one in it.reports] == [(1, "timeout")]
        assert (it.slots.over.is_set(), gate.most) == (False, 0)
        gate.open.set()
        found = {one.task_id: one.outcome for one in await it.reported(3)}
        assert found == {1: "failed", 2: "succeeded", 3: "succeeded"}


async def test_a_later_cancel_can_only_shorten_the_grace(tmp_path: Path) -> None:
    gate = Gate()
    async with stage(tmp_path, deaf=gate.deaf) as it:
        it.submit("deaf", task_id=1)
        it.submit("deaf", task_id=2)
        await wait_until_async(lambda: gate.inside == 2)
        it.cancel(1, 60.0, "first")
        it.cancel(2, 60.0, "first")
        it.cancel(1, 0.0, "second")
        it.cancel(1, 60.0, "third")
        (report,) = await it.reported()
        assert detail(report)["message"] == "cancelled: first; the handler went on"
        gate.open.set()
        await it.reported(2)
        assert timers(it) == []


def _raises() -> None:
    raise ValueError("no such file")


SUCCEEDED, TIMED_OUT, CANCELLED = ("succeeded", None), ("failed", "timeout"), ("cancelled",) * 2
FAILED = ("failed", "handler_error")
ENDS: list[tuple[Callable[[], object], tuple[object, ...], int | None]] = [
    (lambda: 5, SUCCEEDED, None),
    (_raises, FAILED, None),
    (lambda: sys.exit(0), SUCCEEDED, None),
    (sys.exit, SUCCEEDED, None),
    (lambda: sys.exit(3), FAILED, 3),
    (lambda: sys.exit("text"), FAILED, 1),
    (lambda: {1j}, ("failed", "result_not_storable"), None),
]
"""How a handler ends, and how its attempt ends then, here and on a host, if nothing stops it."""
STOPS: dict[str, tuple[object, ...] | None] = {
    "nothing": None,
    "timeout": TIMED_OUT,
    "cancel": CANCELLED,
    "timeout cancel": TIMED_OUT,
}
"""What stops a handler, and how its attempt ends then, whatever the handler does."""


def _has_begun(gate: Gate) -> int:
    return gate.inside or gate.most


@pytest.mark.parametrize("stop", STOPS)
@pytest.mark.parametrize("waiting", ["wait", "deaf", "block"])
async def test_an_attempt_ends_as_on_a_host(tmp_path: Path, waiting: str, stop: str) -> None:
    """Also if its handler goes on after a cancel or blocks its event loop, and returns at last."""
    gates = [Gate() for _ in ENDS]

    async def handler(number: int) -> object:
        with suppress(asyncio.CancelledError):
            await getattr(gates[number], waiting)()
        return ENDS[number][0]()

    fields = {"timeout_seconds": 0.01, "kill_grace_seconds": 60} if "timeout" in stop else {}
    async with stage(tmp_path, handler=handler) as it:
        for number, (gate, (_, outcome, code)) in enumerate(zip(gates, ENDS, strict=True)):
            it.submit("handler", number, task_id=1 + number, **fields)
            await wait_until_async(partial(_has_begun, gate))
            if slot := it.slots._taken.get(AttemptKey(1 + number, 1)):
                if "timeout" in stop:
                    await wait_until_async(slot.run.stopped)
                if "cancel" in stop:
                    it.cancel(1 + number, 60.0)
            gate.open.set()
            report = (await it.reported(1 + number))[number]
            expected = (STOPS[stop] or outcome, None if STOPS[stop] else code)
            assert ((report.outcome, report.kind), report.exit_code) == expected, number


def _cancel_all_tasks(it: Stage) -> None:
    """Cancel all tasks of the event loop of the handlers, as one of them may do; no user's cancel."""
    loop = it.slots._thread._loop

    def cancel() -> None:
        for task in asyncio.all_tasks(loop):
            task.cancel()

    loop.call_soon_threadsafe(cancel)


MOMENTS = {
    "not begun": "wait",
    "waits": "wait",
    "ends": "ends",
    "goes on": "deaf",
    "blocks": "block",
}
VERBS: dict[str, Callable[[Stage], object]] = {
    "nothing": lambda _: None,
    "cancel": lambda it: it.cancel(1),
    "superseded": lambda it: it.slots.handle(Superseded(frozenset({AttemptKey(1, 1)}), 0.0)),
    "stop": lambda it: it.slots.handle(Stop()),
    "kill": lambda it: it.slots.handle(Stop(kill=True)),
    "cancel all tasks": _cancel_all_tasks,
}
CANCELS = {"cancel", "superseded"}
"""The verbs for which an attempt may end as cancelled."""
ALONE = [("nothing", verb) for verb in VERBS]
PAIRS = [pair for pair in product(VERBS, VERBS) if "nothing" not in pair]
CASES = [(verbs, True) for verbs in ALONE + PAIRS] + [(verbs, False) for verbs in ALONE]
"""Verbs, and whether the event loop has room only when they have ended the attempt."""


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("fields", [{}, BRIEF], ids=["", "timeout"])
async def test_each_attempt_ends_once_whatever_stops_it_and_when(
    tmp_path: Path, moment: str, fields: dict[str, Any]
) -> None:
    for number, (verbs, late) in enumerate(CASES):
        await _ends_once(tmp_path / str(number), moment, fields, verbs, late=late)


async def _ends_once(
    folder: Path, moment: str, fields: dict[str, Any], verbs: tuple[str, str], *, late: bool
) -> None:
    gate, subject = Gate(), Gate()
    subject.open = gate.open
    async with stage(folder, blocker=gate.block, **_functions(subject)) as it:
        await _until(moment, it, gate, subject, fields)
        for verb in verbs:
            VERBS[verb](it)
        if moment in {"waits", "ends"}:
            await wait_until_async(it.slots._thread.ping().is_set)
        is_given_up = bool(CANCELS & set(verbs)) or (fields and moment != "not begun")
        if late and is_given_up and "kill" not in verbs:
            await it.reported()
        seen = f"{moment} {fields} {verbs} late={late}: {it.reports}"
        if moment == "not begun":
            assert not it.slots.blocked, seen
            assert all(one.kind != "timeout" for one in it.reports), seen
        given_up = [one.kind for one in it.reports if one.task_id == 1]
        gate.open.set()
        it.slots.handle(Stop())
        await it.slots.over.wait()
        if not it.slots.blocked:
            await wait_until_async(lambda: not it.slots._taken, on_timeout=seen)
            assert sorted(it.slots._free) == [0, 1], seen
            assert timers(it) == [], seen
        mine = [one for one in it.reports if one.task_id == 1]
        assert len(mine) == (0 if "kill" in verbs and not given_up else 1), seen
        if given_up and moment == "not begun":
            assert subject.most == 0, seen
        if not {"kill", *CANCELS} & set(verbs):
            assert mine[0].kind in _kinds(moment, fields, verbs), seen
            assert subject.most or moment != "not begun", "it has never begun"


def _functions(subject: Gate) -> dict[str, Any]:
    """Handlers for the moments."""

    async def ends() -> None:
        try:
            _raises()
        finally:
            await subject.wait()

    return {"wait": subject.wait, "ends": ends, "deaf": subject.deaf, "block": subject.block}


async def _until(moment: str, it: Stage, gate: Gate, subject: Gate, fields: dict[str, Any]) -> None:
    """Submit the attempt, and wait for the moment; on a slow machine it may time out before the verbs."""
    if moment == "not begun":
        it.submit("blocker", task_id=2)
        await wait_until_async(lambda: gate.inside == 1)
    it.submit(MOMENTS[moment], task_id=1, **fields)
    await wait_until_async(lambda: it.reports or AttemptKey(1, 1) in it.slots._taken)
    if moment != "not begun":
        await wait_until_async(lambda: _has_begun(subject))


def _kinds(moment: str, fields: dict[str, Any], verbs: tuple[str, str]) -> set[str | None]:
    """How an attempt may end that no verb cancels, though a handler may cancel its task."""
    is_cancelled = "cancel all tasks" in verbs and moment in {"waits", "ends"}
    kind = "handler_error" if is_cancelled or moment == "ends" else None
    return {kind, "timeout"} if fields else {kind}
