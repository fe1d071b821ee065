"""asyncio slots: what runs at the same time, how each attempt ends, and the two ways to stop."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from mitosis.contracts.attempt import AttemptKey
from mitosis.execution.events import Stop, Superseded
from mitosis.worker.context import current_task
from mitosis.worker_service.coroutines import are_coroutines
from tests.support.coroutine_stage import Gate, detail, stage
from tests.support.waiting import wait_until_async


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
        it.cancel(11, 5.0, "by a user")
        it.slots.handle(Superseded(frozenset({AttemptKey(12, 1)}), 5.0))
        first, second = sorted(await it.reported(2), key=lambda one: one.task_id)
        assert (first.outcome, detail(first)["message"]) == ("cancelled", "cancelled: by a user")
        assert second.outcome == "cancelled"


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
