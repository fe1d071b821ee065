"""Commands made of functions: single options, records of options, former names, exit rules."""

from dataclasses import dataclass
from typing import Annotated, Any

import pytest
import typer

from mitosis.cli import plain_app
from mitosis.cli.context import Cli
from mitosis.cli.exit import report
from mitosis.cli.registration import FormerNames, register, typer_function
from mitosis.contracts.errors import InvalidRequest, MitosisError

WordsOption = Annotated[
    list[str] | None, typer.Option("--word", help="A word."), FormerNames(("--old-word",))
]
CountOption = Annotated[int | None, typer.Option("--count"), FormerNames(("--old-count", "--n"))]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    count: CountOption = None
    wide: Annotated[bool, typer.Option("--wide")] = False


class Exits:
    help_text = "Exit status: 7 it failed."

    def report(self, error: MitosisError | BrokenPipeError, *, as_json: bool) -> int:
        if isinstance(error, BrokenPipeError):
            return 8
        return report(error, as_json=as_json, status=7)


def run(function: Any, *words: str, exits: Exits | None = None) -> Any:
    app = plain_app()
    register(app, "it", exits=exits)(function)
    return typer.main.get_command(app)(args=list(words), standalone_mode=False)


def shown(cli: Cli, sizes: Sizes, word: WordsOption = None) -> str:
    """Show everything."""
    return f"{sizes.count} {sizes.wide} {word} {cli.as_json} {cli.api_option}"


@pytest.mark.parametrize(
    ("words", "result"),
    [
        ([], "None False None False None"),
        (["--count", "3", "--wide", "--word", "a", "--json"], "3 True ['a'] True None"),
        (["--n", "3", "--old-word", "b", "--word", "a"], "3 False ['a', 'b'] False None"),
        (["--old-count", "3", "--count", "4", "--api", "http://x"], "4 False None False --api"),
    ],
)
def test_values_come_in_the_records_they_belong_to(words: list[str], result: str) -> None:
    assert run(shown, *words) == result


def test_the_help_of_a_command_is_that_of_its_function_and_of_its_exit_rules() -> None:
    assert typer_function(shown).__doc__ == "Show everything."
    assert typer_function(shown, Exits()).__doc__ == "Show everything.\n\nExit status: 7 it failed."
    assert typer_function(shown).__name__ == "shown"


@pytest.mark.parametrize(("error", "status"), [(InvalidRequest("no"), 7), (BrokenPipeError(), 8)])
def test_exit_rules_decide_how_an_error_ends(error: Exception, status: int) -> None:
    def failing(cli: Cli) -> None:
        raise error

    assert run(failing, exits=Exits()) == status
    with pytest.raises(type(error)):
        run(failing)
