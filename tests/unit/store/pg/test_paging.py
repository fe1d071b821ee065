"""Cursors and limits of pages."""

import pytest

from mitosis.contracts.errors import InvalidRequest
from mitosis.store.pg.paging import decode_cursor, encode_cursor, page_limit


def test_cursors_come_back_as_they_were() -> None:
    assert decode_cursor("hosts", encode_cursor("hosts", "ä,b", 7), str, int) == ("ä,b", 7)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "W10",
        "bnVsbA",
        encode_cursor("hosts", "a"),
        encode_cursor("hosts", 1, 2),
        encode_cursor("tasks", 1),
        "ä",
    ],
)
def test_foreign_cursors_are_refused(text: str) -> None:
    with pytest.raises(InvalidRequest):
        decode_cursor("hosts", text, int)


@pytest.mark.parametrize("limit", [0, -1, 11])
def test_limits_are_checked(limit: int) -> None:
    assert page_limit(10, 10) == 10
    with pytest.raises(InvalidRequest):
        page_limit(limit, 10)
