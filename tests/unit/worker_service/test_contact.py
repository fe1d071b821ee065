"""The heartbeats of a worker service: how often they are sent, what they name and what they stop."""

from pathlib import Path
from typing import Any

import pytest

from mitosis.concurrency import race
from mitosis.contracts.attempt import AttemptKey
from mitosis.contracts.errors import ConfigurationError, MitosisError, Superseded
from mitosis.contracts.ids import task_uuid
from mitosis.contracts.wire import ClaimTasks, StopOrder
from mitosis.execution import events
from tests.support.service_answers import (
    AWAY,
    NOT_REGISTERED,
    SUPERSEDED,
    Answer,
    Answers,
    attempt,
    beat,
    parts_of,
    registered,
)
from tests.support.waiting import wait_until_async

CLAIM = ClaimTasks(epoch=0, claim_seq=1, acked_seq=0, max_tasks=2)


class Events:
    """In the place of a session: keeps what it is given."""

    def __init__(self) -> None:
        self.given: list[events.Event] = []

    def handle(self, event: events.Event) -> None:
        self.given.append(event)


def stop(task: int, *, superseded: bool = False) -> dict[str, Any]:
    return {
        "task_id": str(task_uuid(7, task)),
        "attempt": 1,
        "superseded": superseded,
        "grace_seconds": 3.0,
        "reason": "cancelled by a user",
    }


async def beats(answers: Answers, folder: Path, count: int, *, running: int = 0) -> Events:
    """Send heartbeats until there were so many, with attempts that run."""
    session = Events()
    claimed = [attempt(11 + place) for place in range(running)]
    answers._answers["claim"] = [(200, {"tasks": claimed, "draining": False})]
    async with parts_of(answers, folder) as it:
        it.contact.slots = session
        await it.registration.begin()
        given = await it.link.claim(CLAIM)
        it.running.extend(AttemptKey(one.task_id, one.attempt) for one in given.tasks)
        there = wait_until_async(
            lambda: len(answers.sent["heartbeat"]) >= count, on_timeout="there were fewer"
        )
        await race(there, it.contact.run(0.01))
    return session


def many(*first: Answer) -> list[Answer]:
    return [*first, *[beat()] * 500]


async def test_heartbeats_name_what_runs_and_stop_what_the_answer_names(tmp_path: Path) -> None:
    answers = Answers(
        workers=[registered(1)], heartbeat=many(beat(stop(11), stop(12, superseded=True)))
    )
    session = await beats(answers, tmp_path, 3, running=2)
    first = answers.sent["heartbeat"][0]
    assert [one["task_id"] for one in first["held"]] == [
        str(task_uuid(7, 11)),
        str(task_uuid(7, 12)),
    ]
    assert session.given == [
        events.StopsOrdered(
            (StopOrder(task_id=11, attempt=1, grace_seconds=3.0, reason="cancelled by a user"),)
        ),
        events.Superseded(frozenset({AttemptKey(12, 1)}), 3.0),
    ]


async def test_a_service_that_runs_nothing_sends_one_every_thirty_seconds(tmp_path: Path) -> None:
    answers = Answers(workers=[registered(1)], heartbeat=many())
    async with parts_of(answers, tmp_path) as it:
        await it.registration.begin()
        looks = iter(range(20))

        async def some_looks() -> None:
            await wait_until_async(lambda: next(looks, None) is None, on_timeout="too slow")

        await race(some_looks(), it.contact.run(0.001))
    assert len(answers.sent["heartbeat"]) == 1


async def test_an_outage_is_waited_out_and_a_lost_registration_is_made_again(
    tmp_path: Path,
) -> None:
    answers = Answers(workers=[registered(1), registered(2)], heartbeat=many(AWAY, NOT_REGISTERED))
    await beats(answers, tmp_path, 3, running=1)
    assert len(answers.sent["workers"]) == 2


class Changes:
    """In the place of the discovery: changes once, or cannot be read."""

    def __init__(self, error: MitosisError | None = None) -> None:
        self.error = error
        self.looks = 0
        self.taken_back = 0

    def changed(self) -> bool:
        self.looks += 1
        if self.error is not None:
            raise self.error
        return self.looks == 1

    def take_back(self) -> list[str]:
        self.taken_back += 1
        return ["config/resize.yaml"]


@pytest.mark.parametrize("way", ["refused by the API", "cannot be read"])
async def test_a_change_that_is_refused_is_logged_once_and_the_service_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, way: str
) -> None:
    refused: Answer = (422, {"code": "invalid_request", "detail": "too large", "status": 422})
    answers = Answers(workers=[registered(1), refused], heartbeat=many())
    changes = Changes(ConfigurationError("x.yaml: wrong") if "read" in way else None)
    async with parts_of(answers, tmp_path) as it:
        it.contact.changes = changes
        await it.registration.begin()
        await race(
            wait_until_async(lambda: changes.looks >= 4, on_timeout="it did not go on"),
            it.contact.run(0.001),
        )
    (said,) = [one for one in caplog.records if one.getMessage() == "configuration.refused"]
    assert vars(said)["reason"] == ("x.yaml: wrong" if "read" in way else "too large")
    assert vars(said)["files"] == ([] if "read" in way else ["config/resize.yaml"])
    assert changes.taken_back == (0 if "read" in way else 1)
    assert len(answers.sent["heartbeat"]) == (1 if "read" in way else 2), "asks what it means"


async def test_a_later_process_ends_this_one(tmp_path: Path) -> None:
    answers = Answers(workers=[registered(1)], heartbeat=[SUPERSEDED])
    with pytest.raises(Superseded):
        await beats(answers, tmp_path, 2)
