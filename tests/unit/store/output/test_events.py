"""Bytes of live output are passed on once; gaps are reported."""

import base64

from mitosis.contracts.following import OutputEvent
from mitosis.store.output.events import Positions, rest_of


def event(offset: int, data: bytes, attempt: int = 1) -> OutputEvent:
    return OutputEvent.model_construct(
        kind="output", task_id=7, attempt=attempt, stream="stdout", offset=offset, data=data
    )


def test_the_api_tells_bytes_once_and_says_what_is_missing() -> None:
    positions = Positions()
    told = [
        positions.advance(7, 1, "stdout", *chunk) for chunk in ((5, b"abc"), (6, b"bcd"), (5, b"a"))
    ]
    assert [(e.offset, e.skipped, e.data) for e in told if e] == [(5, 5, b"abc"), (8, None, b"d")]
    assert told[2] is None
    other = positions.advance(7, 2, "stdout", 0, b"new attempt")
    assert other is not None
    assert other.skipped is None


def test_what_a_result_has_behind_what_was_told_is_told() -> None:
    positions = Positions()
    positions.advance(7, 1, "stdout", 0, b"0123")
    detail = {"stdout": "23456789", "stdout_bytes": 10, "stderr": "", "stderr_bytes": 0}
    (rest,) = rest_of(positions, 7, 1, detail)
    assert (rest.offset, rest.skipped, rest.data) == (4, None, b"456789")
    assert list(rest_of(positions, 7, 1, detail)) == []
    (cut,) = rest_of(positions, 8, 1, detail)
    assert (cut.offset, cut.skipped) == (2, 2)


def test_what_a_result_has_of_output_that_is_no_utf8_is_told_byte_by_byte() -> None:
    positions = Positions()
    positions.advance(7, 1, "stdout", 0, b"\xff\xff one\n")
    kept = b"\xff one\nEND \xff"
    exact = base64.b64encode(kept).decode()
    detail = {"stdout": kept.decode(errors="replace"), "stdout_base64": exact, "stdout_bytes": 12}
    (rest,) = rest_of(positions, 7, 1, detail)
    assert (rest.offset, rest.skipped, rest.data) == (7, None, b"END \xff")
    (cut,) = rest_of(positions, 8, 1, detail)
    assert (cut.offset, cut.skipped, cut.data) == (1, 1, kept)
