"""Cloud Run Jobs, against a local server with its REST surface: at most one execution is adopted per task."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mitosis.contracts.outcome import FailureKind
from mitosis.executors.cloud_run.kind import CloudRunKind
from mitosis.executors.cloud_run.limiter import Limiter
from tests.support.cloud_run_server import JOB, CloudRunServer, cloud_run_server
from tests.support.executor_stage import Attempt, Stage, stage
from tests.support.waiting import wait_until_async

KEY = "MITOSIS_EXECUTION_KEY"


@pytest.fixture
def server() -> Iterator[CloudRunServer]:
    with cloud_run_server() as it:
        yield it


@pytest.fixture
def it(server: CloudRunServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    monkeypatch.setenv("GCE_METADATA_HOST", server.url.removeprefix("http://"))
    kind = CloudRunKind(poll_seconds=0.02, list_seconds=0.4)
    configuration = {"project": "shop", "location": "here", "job": "resize", "endpoint": server.url}
    with stage(tmp_path, "cloud_run", kind, configuration) as staged:
        yield staged


def result_of(ended: Any) -> dict[str, Any]:
    assert ended.kind is None, ended
    found: dict[str, Any] = json.loads(ended.result)
    return found


async def polled(it: Stage) -> Attempt:
    """Start an attempt, and wait until its execution has been seen to run."""
    attempt = it.start()
    await wait_until_async(lambda: bool(it.kept.progress_of))
    return attempt


@pytest.mark.spec("S001-29", "S001-30", "S001-31")
async def test_an_execution_has_the_attempt_and_is_the_checkpoint_before_the_first_poll(
    it: Stage, server: CloudRunServer
) -> None:
    ended = await it.start({"file": "a"}).ended()
    (one,) = server.executions
    assert result_of(ended) == {
        "execution": one.name,
        "log_uri": f"https://logs.example/{one.name}",
    }
    given = json.loads(one.env["MITOSIS_INPUT"])
    assert given["spec"]["arguments"] == {"file": "a"}
    assert one.env[KEY] == f"{given['task_id']}/1"
    assert it.kept.checkpoints == [{"execution": one.name, "key": one.env[KEY]}]
    assert [(said.fraction, said.stage) for said in it.kept.progress_of] == [(0.0, "running")]
    assert sum(call == f"GET /v2/{one.name}" for call in server.calls) == 2
    assert not any("/executions?" in call for call in server.calls)  # a list has all tasks


async def test_a_failure_has_the_exit_status_of_its_task(it: Stage, server: CloudRunServer) -> None:
    server.exit_code = 3
    ended = await it.start().ended()
    assert (ended.kind, ended.exit_code) == (FailureKind.EXIT_CODE, 3)
    assert "Task failed" in (ended.message or "")
    assert "https://logs.example/" in (ended.message or "")


@pytest.mark.parametrize("faults", [["401"], ["429", "503"], ["lost", "500", "401"]])
async def test_calls_that_start_nothing_are_repeated(
    it: Stage, server: CloudRunServer, faults: list[str]
) -> None:
    server.others = list(faults)
    result_of(await it.start().ended())
    assert len(server.executions) == 1
    assert server.others == []


@pytest.mark.parametrize("fault", ["lost", "late"])
async def test_a_start_without_an_answer_is_found_and_not_repeated(
    it: Stage, server: CloudRunServer, fault: str
) -> None:
    server.starts = [fault]
    ended = await it.start().ended()
    assert result_of(ended)["execution"] == server.executions[0].name
    assert len(server.executions) == 1


@pytest.mark.parametrize("fault", ["never", "503"])
async def test_a_start_that_is_not_found_is_repeated_after_the_listing(
    it: Stage, server: CloudRunServer, fault: str
) -> None:
    server.starts = [fault]
    ended = await it.start().ended()
    assert result_of(ended)["execution"] == server.executions[0].name
    assert sum(call.endswith(":run") for call in server.calls) == 2
    assert sum(call.startswith(f"GET /v2/{JOB}/executions?") for call in server.calls) > 2


async def test_an_execution_that_appears_after_the_second_start_is_cancelled(
    it: Stage, server: CloudRunServer
) -> None:
    server.starts, server.ends_after = ["late"], 40
    attempt = it.start()
    await wait_until_async(lambda: len(server.executions) == 1)
    server.executions[0].hidden_for = 10**6
    server.executions[0].ends_after = 10**6
    await wait_until_async(lambda: len(server.executions) == 2)
    server.executions[0].hidden_for = 0
    ended = await attempt.ended()
    assert result_of(ended)["execution"] == server.executions[1].name
    assert [one.cancelled for one in server.executions] == [True, False]
    assert it.kinds["cloud_run"].shared.cancelled_late == 1


async def test_the_next_attempt_adopts_what_runs_or_has_succeeded(
    it: Stage, server: CloudRunServer
) -> None:
    server.ends_after = 10**6
    first = it.start()
    await wait_until_async(lambda: bool(it.kept.checkpoints))
    (checkpoint,) = it.kept.checkpoints
    server.executions[0].ends_after = 0
    for _ in range(2):  # still running, then succeeded
        ended = await it.start(checkpoint=checkpoint).ended()
        assert result_of(ended)["execution"] == server.executions[0].name
    await first.ended()
    assert len(server.executions) == 1


async def test_after_a_failed_execution_the_next_attempt_starts_another(
    it: Stage, server: CloudRunServer
) -> None:
    server.exit_code = 3
    await it.start().ended()
    server.exit_code = 0
    ended = await it.start(checkpoint=it.kept.checkpoints[0]).ended()
    assert result_of(ended)["execution"] == server.executions[1].name
    assert server.executions[1].env[KEY].endswith("/2")


async def test_an_execution_that_was_started_and_not_acknowledged_is_cancelled(
    it: Stage, server: CloudRunServer
) -> None:
    """As after a kill between the start and the checkpoint: the next attempt starts its own."""
    server.ends_after = 10**6
    it.kept.refuses = True
    ended = await it.start().ended()
    assert ended.kind is FailureKind.CANCELLED
    assert [one.cancelled for one in server.executions] == [True]
    server.executions[0].cancelled = False  # its process was killed before it could cancel
    it.kept.refuses, server.ends_after = False, 1
    ended = await it.start().ended()
    assert result_of(ended)["execution"] == server.executions[1].name
    assert [one.cancelled for one in server.executions] == [True, False]


@pytest.mark.spec("S003-28")
async def test_a_cancel_and_a_timeout_end_the_execution(it: Stage, server: CloudRunServer) -> None:
    server.ends_after = 10**6
    attempt = await polled(it)
    attempt.run.cancel("cancelled: not needed", 5.0)
    ended = await attempt.ended()
    assert (ended.kind, ended.message) == (FailureKind.CANCELLED, "cancelled: not needed")
    late = it.start(timeout_seconds=0.3)
    assert (await late.ended()).kind is FailureKind.TIMEOUT
    assert [one.cancelled for one in server.executions] == [True, True]


async def test_a_refused_cancel_is_tried_again(it: Stage, server: CloudRunServer) -> None:
    server.ends_after, server.refused = 10**6, {"cancel"}
    attempt = await polled(it)
    attempt.run.cancel("cancelled: not needed", 5.0)
    await wait_until_async(lambda: sum(call.endswith(":cancel") for call in server.calls) > 1)
    server.refused.clear()
    assert (await attempt.ended()).kind is FailureKind.CANCELLED
    assert server.executions[0].cancelled


async def test_a_deleted_execution_costs_no_attempt(it: Stage, server: CloudRunServer) -> None:
    server.ends_after = 10**6
    attempt = await polled(it)
    with server.lock:
        (one,) = server.executions
        server.executions.clear()
    ended = await attempt.ended()
    assert ended.kind is FailureKind.TERMINATED
    assert one.name in (ended.message or "")


async def test_an_execution_that_may_not_be_read_is_cancelled_and_fails(
    it: Stage, server: CloudRunServer
) -> None:
    server.ends_after = 10**6
    attempt = await polled(it)
    server.refused = {"get"}
    ended = await attempt.ended()
    assert ended.kind is FailureKind.HANDLER_ERROR
    assert server.executions[0].cancelled


@pytest.mark.parametrize("exit_code", [0, 3])
async def test_how_an_execution_ended_counts_without_the_right_to_list_or_read_more(
    it: Stage, server: CloudRunServer, exit_code: int
) -> None:
    server.starts, server.exit_code, server.ends_after = ["lost"], exit_code, 10**6
    attempt = await polled(it)
    server.refused = {"list", "tasks", "cancel"}
    server.executions[0].ends_after = 0
    ended = await attempt.ended()
    assert ended.kind is (FailureKind.HANDLER_ERROR if exit_code else None)
    assert ("Task failed" in (ended.message or "")) == bool(exit_code)


async def test_a_used_up_quota_costs_no_attempt_and_others_wait(
    it: Stage, server: CloudRunServer
) -> None:
    server.starts = ["429"]
    ended = await it.start().ended()
    assert (ended.kind, server.executions) == (FailureKind.TERMINATED, [])
    ended = await it.start().ended()
    assert ended.kind is FailureKind.TERMINATED
    assert "quota is used up" in (ended.message or "")
    assert sum(call.endswith(":run") for call in server.calls) == 1


async def test_a_refusal_is_said_and_not_repeated(it: Stage, server: CloudRunServer) -> None:
    server.starts = ["403"]
    ended = await it.start().ended()
    assert ended.kind is FailureKind.NOT_STARTED
    assert (ended.message or "").startswith("Cloud Run refuses it: ")
    assert sum(call.endswith(":run") for call in server.calls) == 1


async def test_an_attempt_that_is_too_large_is_not_started(
    it: Stage, server: CloudRunServer
) -> None:
    ended = await it.start({"text": "a" * 30_000}).ended()
    assert ended.kind is FailureKind.NOT_STARTED
    assert server.calls == []


async def test_calls_are_spread_over_time() -> None:
    loop = asyncio.get_running_loop()
    limiter = Limiter(per_second=200.0, burst=5)
    began = loop.time()
    await asyncio.gather(*(limiter.wait() for _ in range(25)))
    assert loop.time() - began >= 20 / 200
