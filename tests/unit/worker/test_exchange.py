"""The result of a command that writes JSON to standard output: what is refused, and in which words."""

import os

import pytest

from mitosis.contracts.outcome import FailureKind
from mitosis.worker.command import Streams
from mitosis.worker.exchange import Exchange
from mitosis.worker.output import PipeOutput, end_of
from mitosis.worker.report import Ended


def concluded(written: str) -> Ended:
    data = written.encode()
    ended = Ended(stdout=end_of(data, len(data)))
    pipe = PipeOutput(100)
    with Exchange(b"{}", Streams(0, pipe, pipe)) as exchange:
        exchange.conclude(ended)
    os.close(pipe.read_fd)
    os.close(pipe.write_fd)
    return ended


@pytest.mark.parametrize(
    ("written", "refusal"),
    [
        ('{"a": 1, "a": 2}', "has the key 'a' twice in one object"),
        ('[{"b": {"a": 1, "\\u0061": 2}}]', "has the key 'a' twice in one object"),
        ("[" * 191 + "]" * 191, "is nested deeper than 190 levels"),
        ("[" * 100_000 + "]" * 100_000, "is nested deeper than 190 levels"),
        ("{", "is not JSON: "),
        ("NaN", "is not JSON: "),
        ('"\\ud800"', "contains a lone surrogate"),
        ('"\\u0000"', "contains a NUL character"),
    ],
)
def test_what_cannot_be_a_result_is_refused_as_output_of_the_command(
    written: str, refusal: str
) -> None:
    ended = concluded(written)
    assert ended.kind is FailureKind.RESULT_NOT_STORABLE
    assert str(ended.message).startswith(f"what the command wrote to standard output {refusal}")
    assert ended.result is None


@pytest.mark.parametrize("written", ['{"a": 1, "b": {"a": 2}}', "[]", "null", "1.5"])
def test_other_json_is_the_result(written: str) -> None:
    ended = concluded(written)
    assert (ended.kind, ended.result) == (None, written.encode())
