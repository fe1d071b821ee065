"""Words of a line are those of a real shell."""

import subprocess

import pytest

from mitosis.cli.word_splitting import words_of

SHELL = """
show() { for word in "$@"; do printf '%s\\0' "$word"; done; }
set -f
show """


@pytest.mark.parametrize(
    "line",
    [
        "curl http://host/#part",
        "echo 'x'#y #z",
        r"echo a\ #b",
        r"echo \#b # it's a comment with one quote",
        """echo '#' "# \\" #" ' # '""",
        "echo a#'b c'd # e",
        "#echo",
        "  # echo 'x",
        """echo '' "" ''''""",
    ],
)
def test_quotes_and_comments_are_those_of_a_shell(line: str) -> None:
    ran = subprocess.run(
        ["sh", "-c", f"{SHELL}{line}\n"], capture_output=True, text=True, check=True
    )
    assert words_of(line) == ran.stdout.split("\0")[:-1]
