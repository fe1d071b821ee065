"""The help of the program says of each subcommand what the subcommand says of itself."""

import pytest
import typer

from mitosis.cli import app
from mitosis.cli.subcommands import COMMANDS

PROGRAM = typer.main.get_command(app)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_summary_is_the_first_sentence_of_the_subcommand(name: str) -> None:
    command = PROGRAM.get_command(typer.Context(PROGRAM), name)  # type: ignore[attr-defined]
    assert COMMANDS[name].summary == command.get_short_help_str(1000)


def test_what_is_no_subcommand_is_none() -> None:
    assert PROGRAM.get_command(typer.Context(PROGRAM), "nonsense") is None  # type: ignore[attr-defined]
