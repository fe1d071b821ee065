"""Bodies of the hot routes: every refusal names the field."""

import msgspec
import pytest

from api.bodies import check_utf8, decode
from api.json_text import holds_nul, without_nul
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


def test_numbers_that_no_column_holds_are_refused() -> None:
    body = b'{"epoch":9223372036854775808,"claim_seq":1,"acked_seq":0,"max_tasks":1}'
    with pytest.raises(InvalidRequest) as refused:
        decode(body, msgspec.json.Decoder(ClaimTasks))
    assert refused.value.facts["field"] == "epoch"


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (rb'"a\u0000b"', rb'"a\ufffdb"'),
        (rb'"\u0000\u0000"', rb'"\ufffd\ufffd"'),
        (rb'"a\\u0000"', rb'"a\\u0000"'),
        (rb'"a\\\u0000"', rb'"a\\\ufffd"'),
        (b'"plain"', b'"plain"'),
    ],
)
def test_nul_characters_in_json(text: bytes, kept: bytes) -> None:
    assert holds_nul(text) == (text != kept)
    assert without_nul(text) == kept
    msgspec.json.decode(kept)


def test_a_report_that_is_not_utf8_is_named() -> None:
    report = b'{"task_id":1,"attempt":1,"outcome":"failed","detail":{"stdout":"%s"}}'
    body = b'{"epoch":1,"reports":[' + report % b"ok" + b"," + report % b"\xff" + b"]}"
    decode(body, msgspec.json.Decoder(ReportTasks))  # a detail is kept without being decoded
    with pytest.raises(InvalidRequest) as refused:
        check_utf8(body)
    assert refused.value.facts["field"] == "reports[1]"
