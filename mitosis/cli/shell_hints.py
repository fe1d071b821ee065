"""Hints for a shell line where a program and its arguments are expected. Pure functions.

Source of the words: POSIX, Shell Command Language, 2.4 Reserved Words, 2.14 Special Built-In Utilities,
and built-ins of bash that are not programs.
"""

import re
import shlex
from collections.abc import Sequence

BUILTINS = frozenset(
    (
        ".",
        ":",
        "[[",
        "{",
        "!",
        "alias",
        "break",
        "case",
        "cd",
        "continue",
        "declare",
        "do",
        "eval",
        "exec",
        "exit",
        "export",
        "fc",
        "fg",
        "for",
        "function",
        "getopts",
        "hash",
        "if",
        "jobs",
        "let",
        "local",
        "popd",
        "pushd",
        "read",
        "readonly",
        "return",
        "select",
        "set",
        "shift",
        "shopt",
        "source",
        "times",
        "trap",
        "type",
        "typeset",
        "ulimit",
        "umask",
        "unalias",
        "unset",
        "until",
        "wait",
        "while",
    )
)
_OPERATOR = re.compile(r"[|&;<>()`]|\$[\w({]")


def is_shell_line(words: Sequence[str]) -> bool:
    """Return whether the words need a shell: a built-in, a leading assignment, operators or variables."""
    first = words[0] if words else ""
    return (
        first in BUILTINS
        or re.match(r"[A-Za-z_]\w*=", first) is not None
        or any(_OPERATOR.search(word) for word in words)
    )


def hook_hint(kind: str, words: Sequence[str], message: str | None) -> str | None:
    """Return a hint if the program of a hook was not found and its words need a shell.

    ``kind`` is setup or teardown; ``message`` is the agent's reason for the failure.
    """
    if "No such file or directory" not in (message or "") or not is_shell_line(words):
        return None
    script = " ".join(word if _OPERATOR.fullmatch(word) else _plain(word) for word in words)
    line = f"sh -c {shlex.quote(script)}"
    quoted = shlex.quote(line) if re.search(r"[\"$`\\!]", line) else f'"{line}"'
    return f"a hook is a program and its arguments, not a shell line; write: --{kind} {quoted}"


def _plain(word: str) -> str:
    """Return the word as it was probably typed: quoted only where blanks need it."""
    return shlex.quote(word) if re.search(r"\s", word) or not word else word
