"""Placeholders and inputs that do not fit together are named."""

import io
from pathlib import Path

import pytest

from mitosis.cli.run.choosing import choose
from mitosis.cli.run.options import RunInputs
from mitosis.contracts.errors import InvalidRequest


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["echo", "{2}", ":::", "a", "b"], r"\{2\} names no list: the only list is"),
        (["echo", "{0}", ":::", "a"], r"\{0\} names no list"),
        (["echo", "{}", ":::"], "no values after :::$"),
        (["echo", "{}", ":::", "a", ":::+"], r"no values after :::\+"),
        (["echo", "{x}", ":::", "a"], "has no placeholder"),
    ],
)
def test_words_that_do_not_fit_are_refused(words: list[str], said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        choose(RunInputs(words=words))


def test_a_key_of_no_object_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b'[1, {"a": 2}]')))
    said = r"entry 1 of standard input has no key 'a' for \{a\}"
    with pytest.raises(InvalidRequest, match=said):
        choose(RunInputs(words=["echo", "{a}"], json_file=Path("-")))
