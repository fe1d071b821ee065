"""What the templates of a run mean to a real shell."""

import os
import subprocess

import pytest

from mitosis.cli.run.template import Item, Template, format_argv
from mitosis.contracts.errors import InvalidRequest

NASTY = ["a b", "it's", '"', "$(rm -rf /)", "a\nb", "\udcff\udcfe", "-n", "{}", "*", "", "\\"]


@pytest.mark.parametrize("value", [value for value in NASTY if value.isascii()])
@pytest.mark.parametrize(
    "script",
    [
        "printf %s {}",
        'printf %s "{}"',
        'printf "%s" "it\'s" >/dev/null; printf %s {}',
        'printf %s "$(printf %s "{}")"',
        "printf %s \\'{} | tail -c +2",
        'x={}; printf %s "$x"',
    ],
)
def test_a_real_shell_gives_the_value_back(script: str, value: str) -> None:
    if "$(" in script:
        with pytest.raises(InvalidRequest, match="cannot be in quotes"):
            Template.parse([script], through_shell=True)
        return
    line = Template.parse([script], through_shell=True).argv(Item(value, 1))
    assert subprocess.run(line, capture_output=True, check=True, text=True).stdout == value


@pytest.mark.parametrize(
    "script",
    ['echo "{}"', "echo `printf %s {}`", "echo $(printf %s {})", "echo a{}b"],
)
@pytest.mark.parametrize(
    "value", ["$(echo INJ''ECTED)", "`echo INJ''ECTED`", "'; echo INJ''ECTED; '"]
)
def test_no_shell_reads_a_value_as_code(script: str, value: str) -> None:
    line = Template.parse([script], through_shell=True).argv(Item(value, 1))
    said = subprocess.run(line, capture_output=True, check=True, text=True).stdout
    assert "INJECTED" not in said
    assert "ECTED" in said


def test_a_word_that_is_no_text_is_shown_as_a_shell_takes_it() -> None:
    word = os.fsdecode(b"a\xff b'\\\n")
    said = format_argv(["x", "é 'b", word])
    assert said == r"""['x', "é 'b", $'a\xff b\x27\x5c\x0a']"""
    literal = said.rpartition(", ")[2].removesuffix("]")
    ran = subprocess.run(["bash", "-c", f"printf %s {literal}"], capture_output=True, check=True)
    assert ran.stdout == os.fsencode(word)
