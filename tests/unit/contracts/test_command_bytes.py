"""A command of any bytes survives the way through JSON."""

import os

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mitosis.contracts.errors import InvalidRequest
from mitosis.contracts.task import (
    TaskSpec,
    TaskSubmission,
    check_submission,
    command_argv,
    command_fields,
)

WORDS = st.lists(st.binary(min_size=1).filter(lambda word: b"\0" not in word), min_size=1)


@given(WORDS)
def test_any_argv_survives_json(words: list[bytes]) -> None:
    argv = [os.fsdecode(word) for word in words]
    sent = msgspec.json.encode(TaskSubmission(**command_fields(argv)))
    got = msgspec.json.decode(sent, type=TaskSpec)
    assert [os.fsencode(word) for word in command_argv(got)] == words


def test_text_stays_readable() -> None:
    assert command_fields(["echo", "é"]) == {"command": ["echo", "é"]}


@pytest.mark.parametrize(
    ("words", "text"), [(["*"], "base64"), ([""], "name a program"), (["AA=="], "NUL")]
)
def test_bad_base64_is_refused(words: list[str], text: str) -> None:
    with pytest.raises(InvalidRequest, match=text):
        check_submission(TaskSubmission(command=words, command_encoding="base64"), "tasks[0]")
