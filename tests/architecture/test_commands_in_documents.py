"""Every `mitosis` command line that a document shows is one that the program understands."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from mitosis.cli import PASS_THROUGH, app
from tests.support.pages import TYPED

ROOT = Path(__file__).resolve().parent.parent.parent
DOCUMENTS = sorted(
    {*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("examples/**/*.md")}
    - {ROOT / "docs" / name for name in TYPED}
)
BLOCK = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
PROGRAM = {"mitosis", ".venv/bin/mitosis"}
ROOT_COMMAND: Any = typer.main.get_command(app)
SUBSTITUTION = re.compile(r"\$\(([^()]*)\)")


def shown_commands(text: str) -> Iterator[list[str]]:
    """The words after `mitosis` of each line that a ``console`` block asks to type, and of those in it."""
    for block in BLOCK.findall(text):
        for line in block.splitlines():
            if not line.startswith("$ "):
                continue
            for command in (SUBSTITUTION.sub("1", line[2:]), *SUBSTITUTION.findall(line)):
                words = shlex.split(command, comments=True)
                if words and words[0] in PROGRAM:
                    yield words[1:]


def parse(words: list[str]) -> None:
    """Read a command line as the program does, without running it.

    Raises:
        typer.TyperException: it does not understand it.
    """
    if words[0] == PASS_THROUGH:
        words = [words[0], "--", *words[1:]]
    command = ROOT_COMMAND
    context = command.make_context("mitosis", words)
    while hasattr(command, "resolve_command"):
        name, command, rest = command.resolve_command(
            context, [*context._protected_args, *context.args]
        )
        context = command.make_context(name, rest, parent=context)


FOUND = [
    pytest.param(words, id=f"{path.name}: {shlex.join(words)}"[:90])
    for path in DOCUMENTS
    for words in shown_commands(path.read_text())
]


def test_documents_show_commands() -> None:
    assert len(FOUND) > 20


@pytest.mark.parametrize("words", FOUND)
def test_a_shown_command_is_understood(words: list[str]) -> None:
    parse(words)


def test_a_wrong_command_would_be_noticed() -> None:
    with pytest.raises(typer.TyperException, match="No such option: --nonsense"):
        parse(["group", "create", "hello", "--nonsense"])
    with pytest.raises(typer.TyperException, match="No such command 'nonsense'"):
        parse(["nonsense"])
