"""A shell line where a program is expected: recognised only when it is one, and what to write instead."""

import shlex

import pytest

from mitosis.cli.shell_hints import hook_hint, is_shell_line

MISSING = "cannot start exit: No such file or directory"


@pytest.mark.parametrize(
    ("line", "written"),
    [
        ("exit 3", """--setup "sh -c 'exit 3'\""""),
        ("cd /data && make", """--setup "sh -c 'cd /data && make'\""""),
        ("FOO=1 make", """--setup "sh -c 'FOO=1 make'\""""),
        ("nope 'a b' >log", None),
        ("source $HOME/env", None),
    ],
)
def test_the_line_to_write_is_shown_and_means_the_same(line: str, written: str | None) -> None:
    words = shlex.split(line)
    hint = hook_hint("setup", words, MISSING)
    assert hint is not None
    shown = hint.partition("write: ")[2]
    if written is not None:
        assert shown == written
    shell, option, script = shlex.split(shlex.split(shown)[1])
    assert (shell, option) == ("sh", "-c")
    assert shlex.split(script) == words


def test_a_program_that_is_missing_is_no_shell_line() -> None:
    assert not is_shell_line(["mkdr", "-p", "/data"])
    assert hook_hint("setup", ["mkdr", "-p", "/data"], MISSING) is None
    assert hook_hint("setup", ["exit", "3"], "exit code 3") is None
