"""An agent learns from each answer which fields the API accepts, and sends the first ones to any other."""

import json
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from manager_agent.agent_api import AgentApi
from mitosis.client.http_link import HttpAnswer, HttpRequest
from mitosis.contracts import wire
from mitosis.contracts.errors import InvalidRequest

REFUSED = (
    422,
    {"code": "invalid_request", "detail": "unknown field", "field": "progress", "status": 422},
)


class Renewal(wire.Renewal, kw_only=True):
    """As a later version may have it."""

    progress: dict[str, float] = msgspec.field(default_factory=dict)


RENEWAL = Renewal(incarnation=1, progress={"7": 0.5})


class Answers:
    """Gives the next answer, and keeps what was sent."""

    def __init__(self, *answers: tuple[int, dict[str, Any]]) -> None:
        self._answers = list(answers)
        self.sent: list[dict[str, Any]] = []

    async def call(self, request: HttpRequest, **_: float | None) -> HttpAnswer:
        self.sent.append(json.loads(request.body))
        status, body = self._answers.pop(0)
        kind = b"application/problem+json" if status >= 400 else b"application/json"
        return HttpAnswer(status, [(b"content-type", kind)], json.dumps(body).encode())

    def close(self) -> None:
        """Nothing is open."""


def renewed(*listed: str) -> tuple[int, dict[str, Any]]:
    return 200, {"request_fields": {"Renewal": listed}} if listed else {}


async def with_progress(answers: Answers, renewals: int) -> Sequence[bool]:
    """Renew so often; return whether each request had the later field."""
    api = AgentApi("http://api.test", "token", answers)
    for _ in range(renewals):
        await api.renew(RENEWAL)
    return ["progress" in one for one in answers.sent]


async def test_a_later_field_is_sent_while_the_last_answer_listed_it() -> None:
    answers = Answers(renewed("progress"), renewed("progress"), renewed(), renewed())
    assert await with_progress(answers, 4) == [False, True, True, False]


async def test_an_api_that_refuses_what_the_last_one_listed_gets_the_first_fields() -> None:
    answers = Answers(renewed("progress"), REFUSED, renewed(), renewed())
    assert await with_progress(answers, 3) == [False, True, False, False]


async def test_a_refusal_of_the_first_fields_is_not_repeated() -> None:
    answers = Answers(REFUSED)
    with pytest.raises(InvalidRequest):
        await with_progress(answers, 1)
    assert len(answers.sent) == 1
