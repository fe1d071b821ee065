"""What the agent passes on of whole outputs: in order, repeated while the reader is behind, or dropped."""

import asyncio
from typing import Any, cast

import pytest

from manager_agent.agent_api import AgentApi
from mitosis.contracts.attempt import AttemptKey
from mitosis.contracts.errors import ApiUnavailable, InvalidRequest, MitosisError
from mitosis.contracts.wire import LeaseStanding, WriteOutput, WriteOutputAnswer
from mitosis.execution import whole_output
from mitosis.execution.whole_output import WholeOutput
from mitosis.ipc.messages import OutputTaken, TaskOutput

ACTIVE = LeaseStanding.ACTIVE
Answer = WriteOutputAnswer | MitosisError


class Api:
    """Answers as the test says, and remembers the requests."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.requests: list[WriteOutput] = []

    async def output(self, request: WriteOutput) -> WriteOutputAnswer:
        self.requests.append(request)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, MitosisError):
            raise answer
        return answer


async def passed_on(api: Api, *pieces: TaskOutput) -> list[OutputTaken]:
    """Deliver these pieces; return the final answers to the worker."""
    sent: list[OutputTaken] = []
    whole = WholeOutput(
        5, cast("AgentApi", api), lambda slot, generation, message: sent.append(message)
    )
    for piece in pieces:
        whole.wrote(0, 1, piece)
    delivering = asyncio.create_task(whole.deliver())
    async with asyncio.timeout(10):
        while len([m for m in sent if m.position or m.dropped]) < len(pieces):  # noqa: ASYNC110
            await asyncio.sleep(0)
    delivering.cancel()
    return sent


def piece(task: int, offset: int = 0, data: bytes = b"x" * 10) -> TaskOutput:
    return TaskOutput(AttemptKey(task, 1), "stdout", offset, data, whole=True)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whole_output, "PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(whole_output, "UNREACHED_SECONDS", 0.0)


async def test_pieces_go_in_order_and_are_acknowledged_by_position() -> None:
    api = Api(WriteOutputAnswer(standing=ACTIVE, written=8))
    pieces = [piece(1, 10 * number) for number in range(20)]
    answers = await passed_on(api, *pieces)
    assert [chunk.offset for request in api.requests for chunk in request.chunks] == [
        10 * number for number in range(20)
    ]
    assert [answer.position for answer in answers] == [10 * number for number in range(1, 21)]
    assert all(request.whole for request in api.requests)


async def test_a_reader_that_is_behind_gets_the_same_pieces_again() -> None:
    full = WriteOutputAnswer(standing=ACTIVE, written=0, full=True)
    api = Api(full, full, WriteOutputAnswer(standing=ACTIVE, written=1))
    answers = await passed_on(api, piece(1))
    assert api.requests == [api.requests[0]] * 3
    assert answers == [
        OutputTaken(AttemptKey(1, 1), "stdout", 0),  # the reader lives: wait
        OutputTaken(AttemptKey(1, 1), "stdout", 0),
        OutputTaken(AttemptKey(1, 1), "stdout", 10),
    ]


async def test_only_what_nothing_reads_is_dropped() -> None:
    api = Api(WriteOutputAnswer(standing=ACTIVE, written=1, unread=[2]))
    one, two = await passed_on(api, piece(1), piece(2))
    assert (one.dropped, two.dropped) == (False, True)


@pytest.mark.parametrize("error", [ApiUnavailable("away"), InvalidRequest("no")])
async def test_tasks_go_on_when_the_api_does_not_take_output(error: Any) -> None:
    (answer,) = await passed_on(Api(error), piece(1))
    assert answer.dropped
