"""Bodies of the hot routes: every refusal names the field."""

import msgspec
import pytest

from api.bodies import check_utf8, decode
from mitosis.contracts.errors import InvalidRequest
from mitosis.contracts.wire import ClaimTasks, ReportTasks, SubmitTasks

SUBMIT = msgspec.json.Decoder(SubmitTasks)


@pytest.mark.parametrize(
    ("body", "field", "says"),
    [
        (b"", "body", "JSON"),
        (b"[]", "body", "object"),
        (b"{}", "tasks", "required"),
        (b'{"more":1}', "more", "unknown field"),
        (b'{"tasks":[]}', "tasks", "length >= 1"),
        (b'{"tasks":[{"command":["a"],"comand":1}]}', "tasks[0].comand", "unknown field"),
        (b'{"tasks":[{"command":["a"],"priority":"x"}]}', "tasks[0].priority", "int"),
        (b'{"tasks":[{"retry":{"max_attempts":0}}]}', "tasks[0].retry.max_attempts", ">= 1"),
        (b'{"tasks":[{"command":"ls -l"}]}', "tasks[0].command", "array"),
        (b'{"tasks":[{"command":["a"]},{"command":["\xff"]}]}', "tasks[1]", "UTF-8"),
        (b'{"tasks":[{"arguments":' + b"[" * 100_000, "body", "deeply"),
        (b'{"tasks":[{"command":["a"],"timeout_seconds":0}]}', "tasks[0].timeout_seconds", "> 0"),
    ],
)
def test_a_bad_body_names_the_field(body: bytes, field: str, says: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        decode(body, SUBMIT)
    assert refused.value.facts["field"] == field
    assert says in refused.value.message


BODIES = [
    b'{"tasks":[{"command":["a","b"],"priority":1,"arguments":{"x":[1,2,{"y":null}]}}]}',
    b'{"tasks":[{"command":["a"],"priority":"x"}],"y":NaN}',
    b'{"tasks":[{"command":["a"],"priority":1.5}],"more":{"a":[1e999,"\\ud800"]}}',
    b'{"tasks":1,"tasks":[{"command":["a"]}]}',
    b'{"tasks":[{"command":["a\\u0000"]}]}',
]
DEEP = [b"[" * depth + b"]" * depth for depth in (100, *range(880, 1_000), 5_000)]
"""Each decoder gives up at a depth of its own, near the height of the stack."""


@pytest.mark.parametrize("body", BODIES)
def test_a_body_is_refused_wherever_it_is_cut_or_damaged(body: bytes) -> None:
    damaged = [
        changed
        for place in range(len(body) + 1)
        for changed in (
            body[:place],
            body[:place] + b"\xff" + body[place:],
            body[:place] + b"[" + body[place:],
            body[:place] + b"NaN" + body[place + 1 :],
        )
    ]
    deep = [
        body.replace(b"1", nested).replace(b"{", b'{"z":' + nested + b",", 1) for nested in DEEP
    ]
    for changed in [*damaged, *deep, body + b" x", body + body]:
        assert _field_refused(changed) != "", changed[:200]


def _field_refused(body: bytes) -> str | None:
    """Return the field that a refusal names; None if the body is accepted. No other error is caught."""
    try:
        decode(body, SUBMIT)
    except InvalidRequest as refused:
        return str(refused.facts.get("field", ""))
    return None


def test_a_repeated_key_is_named() -> None:
    with pytest.raises(InvalidRequest, match="repeated") as refused:
        decode(b'{"tasks":1,"tasks":[{"command":["a"]}]}', SUBMIT)
    assert refused.value.facts["field"] == "tasks"


def test_numbers_that_no_column_holds_are_refused() -> None:
    body = b'{"epoch":9223372036854775808,"claim_seq":1,"acked_seq":0,"max_tasks":1}'
    with pytest.raises(InvalidRequest) as refused:
        decode(body, msgspec.json.Decoder(ClaimTasks))
    assert refused.value.facts["field"] == "epoch"


def test_a_report_that_is_not_utf8_is_named() -> None:
    report = b'{"task_id":1,"attempt":1,"outcome":"failed","detail":{"stdout":"%s"}}'
    body = b'{"epoch":1,"reports":[' + report % b"ok" + b"," + report % b"\xff" + b"]}"
    decode(body, msgspec.json.Decoder(ReportTasks))  # a detail is kept without being decoded
    with pytest.raises(InvalidRequest) as refused:
        check_utf8(body)
    assert refused.value.facts["field"] == "reports[1]"
