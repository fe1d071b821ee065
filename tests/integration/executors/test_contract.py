"""The contract of executors, for each of them: what `mitosis worker` relies on, whatever the kind."""

import json
from pathlib import Path

import pytest

from mitosis.contracts.outcome import FailureKind
from tests.support.executor_cases import CASES, Case, InProcess, InProcessKind
from tests.support.waiting import wait_until_async


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Case:
    return Case(request.param, tmp_path, monkeypatch)


@pytest.mark.spec("S003-24", "S001-28")
async def test_a_success_has_its_result_and_saw_arguments_and_configuration(case: Case) -> None:
    with case.staged() as it:
        ended = await it.start({"do": "succeed"}).ended()
    assert ended.kind is None, ended
    result = json.loads(ended.result or b"")
    assert result["configuration"]["size"] == 300
    assert result["given"]["spec"]["arguments"] == {"do": "succeed"}
    assert ended.started_at is not None
    assert ended.finished_at >= ended.started_at


@pytest.mark.spec("S003-24", "S001-28")
async def test_a_failure_has_its_exit_status_and_its_reason(case: Case) -> None:
    with case.staged() as it:
        ended = await it.start({"do": "fail"}).ended()
    assert ended.kind in {FailureKind.EXIT_CODE, FailureKind.HANDLER_ERROR}, ended
    assert ended.exit_code == 3
    assert ended.message
    assert "no such shelf" in ended.stderr.text


async def test_a_timeout_ends_what_runs(case: Case) -> None:
    with case.staged() as it:
        attempt = it.start({"do": "wait"}, timeout_seconds=0.7)
        ended = await attempt.ended()
        assert (ended.kind, ended.result) == (FailureKind.TIMEOUT, None), ended
        assert (ended.message or "").startswith("ran longer than its timeout of 0.7 s")
        assert case.is_gone()


@pytest.mark.spec("S003-28")
async def test_a_cancel_asks_it_to_end(case: Case) -> None:
    with case.staged() as it:
        attempt = it.start({"do": "wait"})
        await wait_until_async((case.folder / "pid").exists)
        attempt.run.cancel("cancelled: not needed", 20.0)
        ended = await attempt.ended()
        assert ended.kind is FailureKind.CANCELLED
        assert (ended.message or "").startswith("cancelled: not needed")
        assert (case.folder / "asked").exists()
        assert case.is_gone()


@pytest.mark.spec("S003-28")
async def test_what_does_not_end_is_ended_after_the_grace_and_a_later_stop_can_shorten_it(
    case: Case,
) -> None:
    (case.folder / "ignore").touch()
    with case.staged() as it:
        attempt = it.start({"do": "ignore"})
        await wait_until_async((case.folder / "pid").exists)
        attempt.run.cancel("cancelled", 600.0)
        attempt.run.cancel("the worker was shut down", 0.1)
        ended = await attempt.ended()
        assert ended.kind is FailureKind.CANCELLED
        assert (ended.message or "").startswith("cancelled")
        assert not (case.folder / "asked").exists()
        assert case.is_gone()


@pytest.mark.spec("S003-27")
async def test_progress_rises_from_0_to_1_and_a_checkpoint_reaches_the_next_attempt(
    case: Case,
) -> None:
    with case.staged() as it:
        ended = await it.start({"do": "advance"}, checkpoint={"file": 1}).ended()
        assert ended.kind is None, ended
        assert json.loads(ended.result or b"") == {"before": {"file": 1}}
        said = it.kept.progress_of
        assert [(one.fraction, one.stage, one.message) for one in said] == [
            (0.25, "copy", "first"),
            (0.75, "check", "first"),
        ]
        assert it.kept.checkpoints == [{"file": 3}]


async def test_what_makes_no_progress_is_stuck(case: Case) -> None:
    with case.staged(stuck_after_seconds=0.5) as it:
        ended = await it.start({"do": "wait"}).ended()
        assert ended.kind is FailureKind.STUCK, ended
        assert (ended.message or "").startswith("made no progress for 0.5 s")
        assert case.is_gone()


@pytest.mark.spec("S003-25")
async def test_twice_its_estimate_without_progress_is_stuck(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rule is the service's, for all kinds; where an estimate is from is the executor's."""
    with Case("in_process", tmp_path, monkeypatch).staged(estimate_seconds=0.1) as it:
        ended = await it.start({"do": "wait"}).ended()
    assert (ended.kind, ended.message) == (FailureKind.STUCK, "made no progress for 0.2 s")


@pytest.mark.spec("S003-26")
async def test_lacking_resources_refuse_an_attempt_before_it_counts(case: Case) -> None:
    with case.staged(memory_mb=10**9) as it:
        ended = await it.start({"do": "succeed"}).ended()
    # of this kind no number counts against max_attempts, and it is tried again after a pause
    assert ended.kind is FailureKind.TERMINATED, ended
    assert "memory_mb is" in (ended.message or "")


@pytest.mark.parametrize("method", ["make", "validate_resources", "estimate_seconds"])
async def test_an_error_of_an_executor_before_it_begins_fails_its_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    def fail(*_: object) -> None:
        raise KeyError("books")

    monkeypatch.setattr(InProcessKind if method == "make" else InProcess, method, fail)
    with Case("in_process", tmp_path, monkeypatch).staged() as it:
        ended = await it.start({"do": "wait"}, timeout_seconds=5).ended()
    assert (ended.kind, ended.message) == (FailureKind.HANDLER_ERROR, "KeyError: 'books'")


async def test_the_end_of_the_process_ends_what_runs(case: Case) -> None:
    with case.staged() as it:
        it.start({"do": "ignore"})
        await wait_until_async((case.folder / "pid").exists)
        it.thread.close()
        await wait_until_async(case.is_gone)
