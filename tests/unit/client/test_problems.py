"""Errors of the API come back as what they were."""

import json

import pytest

from api.errors import problem_response
from mitosis.client.problems import error_from
from mitosis.contracts.errors import (
    BY_CODE,
    ApiUnavailable,
    DatabaseUnavailable,
    InvalidTransition,
    MitosisError,
)


@pytest.mark.spec("S000-171")
@pytest.mark.parametrize("code", sorted(BY_CODE))
def test_every_class_survives_the_way_over_http(code: str) -> None:
    sent = BY_CODE[code].__new__(BY_CODE[code])
    MitosisError.__init__(sent, "what happened", field="tasks[3].command", limit=7)
    answer = problem_response(sent)
    got = error_from(answer.status_code, answer.headers, bytes(answer.body))
    assert type(got) is BY_CODE[code]
    assert got.message == "what happened"
    assert (got.facts["field"], got.facts["limit"]) == ("tasks[3].command", 7)


def test_an_invalid_transition_lists_what_is_allowed() -> None:
    sent = InvalidTransition(
        subject="task group", state="complete", event="reopen", allowed=["close"]
    )
    answer = problem_response(sent)
    got = error_from(answer.status_code, answer.headers, bytes(answer.body))
    assert got.facts == sent.facts
    assert str(got) == str(sent)


def test_retry_after_becomes_a_fact() -> None:
    answer = problem_response(DatabaseUnavailable(retry_after_seconds=2.5))
    assert answer.headers["retry-after"] == "3"
    got = error_from(answer.status_code, answer.headers, bytes(answer.body))
    assert got.facts["retry_after_seconds"] == 2.5
    assert error_from(503, {"retry-after": "7"}, b"").facts["retry_after_seconds"] == 7


def test_facts_cannot_take_the_place_of_standard_members() -> None:
    answer = problem_response(MitosisError("said", status=1, type="x", code="y"))
    document = json.loads(bytes(answer.body))
    assert (document["status"], document["code"]) == (500, "internal")


@pytest.mark.parametrize("body", [b"", b"<html>", b"[1]", b"{}"])
def test_what_is_not_ours_is_still_an_error(body: bytes) -> None:
    html = {"content-type": "text/html"}
    assert isinstance(error_from(502, html, body), ApiUnavailable)
    assert not error_from(404, html, body).retryable
    broken = {"content-type": "application/problem+json"}
    assert isinstance(error_from(500, broken, body), MitosisError)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "12"}, 12),
        ({"retry-after": "Sat, 28 Nov 2026 03:00:30 GMT"}, 30),
        ({"retry-after": "Sat, 28 Nov 2026 02:00:30 GMT"}, 0),  # over already
        ({"retry-after": "soon"}, None),
        ({"retry-after": "٣"}, None),
        ({}, None),
    ],
)
def test_retry_after_in_seconds_or_as_a_date(
    headers: dict[str, str], seconds: float | None
) -> None:
    """RFC 9110, 10.2.3; a date is read by the clock of the one who wrote it."""
    now = {"date": "Sat, 28 Nov 2026 03:00:00 GMT"}
    got = error_from(429, headers | now, b"").facts
    assert got.get("retry_after_seconds") == seconds


def test_a_busy_answer_without_a_document_may_be_repeated() -> None:
    """As of a proxy that limits."""
    assert error_from(429, {}, b"slow down").retryable
    assert error_from(503, {}, b"").retryable
    assert not error_from(400, {}, b"").retryable
