"""Placeholders become argv elements, whatever the values hold."""

import shlex
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mitosis.cli.run.template import Item, Template, corrected
from mitosis.contracts.errors import InvalidRequest

NASTY = ["a b", "it's", '"', "$(rm -rf /)", "a\nb", "\udcff\udcfe", "-n", "{}", "*", "", "\\"]


def argv(*words: str, value: str = "dir/a.tar.gz", number: int = 7, **columns: str) -> list[str]:
    return Template.parse(words, columns).argv(Item(value, number, columns))


@pytest.mark.parametrize(
    ("word", "filled"),
    [
        ("{}", "dir/a.tar.gz"),
        ("{.}", "dir/a.tar"),
        ("{/}", "a.tar.gz"),
        ("{//}", "dir"),
        ("{/.}", "a.tar"),
        ("{#}", "7"),
        ("out/{/.}.{#}", "out/a.tar.7"),
        ("{{}}", "{}"),
        ("{print $1}", "{print $1}"),
        ("{name}", "{name}"),
        ("--x={}{}", "--x=dir/a.tar.gzdir/a.tar.gz"),
    ],
)
def test_a_placeholder_is_filled(word: str, filled: str) -> None:
    assert argv("tool", word) == ["tool", filled]


def test_a_value_without_a_folder_is_in_the_present_one() -> None:
    assert argv("tool", "{//}", value="a.txt") == ["tool", "."]


@pytest.mark.parametrize("value", NASTY)
def test_a_value_stays_one_element_and_is_not_looked_into(value: str) -> None:
    assert argv("tool", "{}", "x{}y", value=value) == ["tool", value, f"x{value}y"]


def test_columns_are_filled_by_name_and_unknown_ones_are_refused() -> None:
    assert argv("tool", "{host}:{port}", host="h", port="80") == ["tool", "h:80"]
    with pytest.raises(InvalidRequest, match=r"\{hots\} names no column; there are host, port"):
        argv("tool", "{hots}", host="h", port="80")
    assert argv("tool", "{{hots}}", host="h") == ["tool", "{hots}"]


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])))
def test_with_a_shell_the_value_is_quoted(value: str) -> None:
    line = Template.parse(["printf", "%s", "{}", "|", "cat"], through_shell=True).argv(
        Item(value, 1)
    )
    assert line[:2] == ["sh", "-c"]
    assert shlex.split(line[2])[2] == value


@pytest.mark.parametrize("value", [value for value in NASTY if value.isascii()])
def test_a_real_shell_gives_the_value_back(value: str) -> None:
    line = Template.parse(["printf", "%s", "{}"], through_shell=True).argv(Item(value, 1))
    assert subprocess.run(line, capture_output=True, check=True, text=True).stdout == value


def test_placeholders_are_noticed() -> None:
    assert Template.parse(["a", "{}"]).has_placeholders
    assert Template.parse(["a", "x{#}"]).has_placeholders
    assert not Template.parse(["awk", "{print $1}", "{{}}"]).has_placeholders
    assert Template.parse(["a", "{n}"], ["n"]).has_placeholders


def test_the_correction_can_be_typed() -> None:
    assert corrected(["echo", "a b"]) == "echo 'a b' {}"
    assert corrected(["echo"], ["a", "b c"]) == "echo {} ::: a 'b c'"


def test_no_command_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="a command is needed"):
        Template.parse([])
