"""The claims and reports of a worker service: what they name, and what follows from the answers."""

import asyncio
import json
from pathlib import Path

import pytest

from mitosis.concurrency import race
from mitosis.contracts.attempt import AttemptKey
from mitosis.contracts.errors import Superseded
from mitosis.contracts.ids import task_uuid
from mitosis.contracts.outcome import FailureKind
from mitosis.contracts.wire import ClaimTasks, Outcome, ReportStatus, TaskReport
from mitosis.ipc.messages import EncodedReport
from mitosis.worker_service import link as module
from tests.support.service_answers import (
    NOT_REGISTERED,
    SUPERSEDED,
    Answer,
    Answers,
    attempt,
    parts_of,
    registered,
)

CLAIM = ClaimTasks(epoch=0, claim_seq=1, acked_seq=0, max_tasks=2, wait_seconds=8.0)


def given(*attempts: object, draining: bool = False) -> Answer:
    return 200, {"tasks": list(attempts), "draining": draining}


def ended(task: int) -> EncodedReport:
    report = TaskReport(task_id=task, attempt=1, outcome=Outcome.SUCCEEDED, finished_at=2.0)
    return EncodedReport.of(report)


async def test_a_claim_names_what_runs_and_what_has_no_answer_yet(tmp_path: Path) -> None:
    answers = Answers(workers=[registered(1)], claim=[given(attempt(11)), given(attempt(12))])
    async with parts_of(answers, tmp_path, slots=3) as it:
        await it.registration.begin()
        first = await it.link.claim(CLAIM)
        it.running.extend(AttemptKey(one.task_id, one.attempt) for one in first.tasks)
        it.reporter.add(9, [ended(13)], urgent=False)
        await it.link.claim(CLAIM)
    empty, full = answers.sent["claim"]
    assert "held" not in empty
    assert {one["task_id"] for one in full["held"]} == {
        str(task_uuid(7, 11)),
        str(task_uuid(9, 13)),
    }
    assert (empty["max_tasks"], full["wait_seconds"]) == (2, 8.0)
    assert full.get("max_tasks", 1) == 1, "no more than there is room for"


async def test_no_claim_is_made_before_what_has_ended_is_reported(tmp_path: Path) -> None:
    """The API counts it until then: the claim would wait for tasks that it could not be given."""
    statuses: Answer = (200, {"standing": "current", "statuses": ["committed"]})
    answers = Answers(workers=[registered(1)], report=[statuses], claim=[given(attempt(12))])
    async with parts_of(answers, tmp_path, slots=1) as it:
        await it.registration.begin()
        it.reporter.add(7, [ended(11)], urgent=True)
        claiming = asyncio.create_task(it.link.claim(CLAIM))
        await asyncio.sleep(0)
        assert answers.sent["claim"] == []
        await race(claiming, it.reporter.run())
        assert [one.task_id for one in claiming.result().tasks] == [12]
        assert "held" not in answers.sent["claim"][0]


async def test_a_registration_that_is_over_is_made_again_by_the_same_process(
    tmp_path: Path,
) -> None:
    answers = Answers(
        workers=[registered(1), registered(2)], claim=[NOT_REGISTERED, given(attempt(11))]
    )
    async with parts_of(answers, tmp_path) as it:
        await it.registration.begin()
        answer = await it.link.claim(CLAIM)
        assert [one.task_id for one in answer.tasks] == [11]
        assert it.registration.registration_id == 2
    first, again = answers.sent["workers"]
    assert first == again


async def test_a_later_process_ends_this_one(tmp_path: Path) -> None:
    answers = Answers(workers=[registered(1)], claim=[SUPERSEDED], heartbeat=[SUPERSEDED])
    async with parts_of(answers, tmp_path) as it:
        await it.registration.begin()
        with pytest.raises(Superseded):
            await it.link.claim(CLAIM)
        with pytest.raises(Superseded):
            await it.contact.run(60.0)


async def test_what_must_not_start_is_reported_and_not_given_to_a_slot(tmp_path: Path) -> None:
    over, unknown = attempt(11, stop=True), attempt(12, version="9")
    answers = Answers(workers=[registered(1)], claim=[given(over, unknown, attempt(13))])
    async with parts_of(answers, tmp_path) as it:
        await it.registration.begin()
        answer = await it.link.claim(CLAIM)
        assert [one.task_id for one in answer.tasks] == [13]
        assert it.reporter.pending() == [(7, AttemptKey(11, 1)), (7, AttemptKey(12, 1))]


async def test_a_draining_service_does_not_ask_without_a_pause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []

    async def pause(seconds: float) -> None:
        pauses.append(seconds)

    answers = Answers(workers=[registered(1)], claim=[given(draining=True), given()])
    async with parts_of(answers, tmp_path) as it:
        await it.registration.begin()
        with monkeypatch.context() as changed:
            changed.setattr("mitosis.worker_service.link.asyncio.sleep", pause)
            await it.link.claim(CLAIM)
            assert pauses == [module.DRAINED_SECONDS]
            await it.link.claim(CLAIM)
            assert pauses == [module.DRAINED_SECONDS]


async def test_reports_carry_the_public_ids_of_their_group(tmp_path: Path) -> None:
    statuses: Answer = (200, {"standing": "current", "statuses": ["committed"]})
    answers = Answers(workers=[registered(1)], report=[statuses])
    async with parts_of(answers, tmp_path) as it:
        await it.registration.begin()
        answer = await it.link.report(7, [ended(11).report])
        assert answer.statuses == [ReportStatus.COMMITTED]
    (sent,) = answers.sent["report"]
    incarnation = answers.sent["workers"][0]["incarnation"]
    assert (sent["incarnation"], sent["reports"][0]["task_id"]) == (
        incarnation,
        str(task_uuid(7, 11)),
    )


async def test_reports_after_the_end_of_a_registration_make_it_again(tmp_path: Path) -> None:
    over: Answer = (200, {"standing": "over", "statuses": ["committed"]})
    answers = Answers(workers=[registered(1), registered(2)], report=[over])
    async with parts_of(answers, tmp_path) as it:
        await it.registration.begin()
        await it.link.report(7, [ended(11).report])
        assert it.registration.registration_id == 2


async def test_the_next_process_names_what_the_journal_holds(tmp_path: Path) -> None:
    async with parts_of(Answers(workers=[registered(1)]), tmp_path) as it:
        await it.registration.begin()
        it.reporter.add(7, [ended(11)], urgent=False)
    answers = Answers(workers=[registered(2, incarnation=6)])
    async with parts_of(answers, tmp_path) as it:
        await it.registration.begin()
    (body,) = answers.sent["workers"]
    assert body["unreported"] == [{"task_id": str(task_uuid(7, 11)), "attempt": 1}]
    assert json.dumps(body).count(FailureKind.NOT_STARTED) == 0
