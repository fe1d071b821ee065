"""The ``mitosis`` command: finds the subcommand and ends the process.

The module of a subcommand is imported only when that subcommand runs, so ``mitosis --version`` and
``mitosis --help`` import nothing but typer. These modules import heavy packages inside their functions.
"""

import logging
import os
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from mitosis.app_root import enter_app
from mitosis.cli.streams import StandardOutputLost, flush, open_standard_streams
from mitosis.cli.subcommands import COMMANDS, FORMER_COMMANDS
from mitosis.version import __version__

PASS_THROUGH = "temporal"  # noqa: S105 - not a password
"""Every word after this subcommand is passed to another program, including `--help` and `--`."""


def main() -> None:
    """Run the ``mitosis`` program and end the process; known errors show no traceback."""
    open_standard_streams()
    enter_app()
    _exit(execute(sys.argv[1:]))


def _exit(status: int) -> NoReturn:
    """End the process; skip the interpreter's teardown when threads could abort it.

    Threads of Temporal's SDK can abort it (temporalio/sdk-python#300). A thread that waits for standard
    input holds a lock that the teardown needs, and the process would end with SIGABRT.
    """
    with suppress(StandardOutputLost):  # the command has reported its error
        flush()
    if "temporalio" in sys.modules or threading.active_count() > 1:
        logging.shutdown()
        os._exit(status)
    sys.exit(status)


def execute(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit status (``mitosis.cli.exit.ExitStatus``)."""
    from mitosis.cli.exit import ExitStatus, report, report_usage
    from mitosis.contracts.errors import MitosisError

    words = _present_names(arguments)
    if words[:1] == [PASS_THROUGH]:
        words.insert(1, "--")
    streams = sys.stdout, sys.stderr
    own_words = words[: words.index("--")] if "--" in words else words
    try:
        status = _root()(args=words, prog_name="mitosis", standalone_mode=False)
        flush()
    except MitosisError as error:
        return report(error, as_json="--json" in own_words)
    except typer.TyperException as error:
        return report_usage(error, as_json="--json" in own_words)
    except typer.Abort:
        return ExitStatus.INTERRUPTED
    except SystemExit:
        if sys.stdout is streams[0]:
            raise
        sys.stdout, sys.stderr = streams  # typer replaced them on EPIPE: a closed pipe is no error
        return ExitStatus.OK
    return int(status or 0)


def _present_names(arguments: Sequence[str]) -> list[str]:
    """Return the words with the present name of a subcommand that had another one before."""
    words = list(arguments)
    former = words[0] if words else ""
    if former in FORMER_COMMANDS and former not in COMMANDS:
        words[0] = FORMER_COMMANDS[former]
        typer.echo(f"note: `mitosis {former}` is now `mitosis {words[0]}`", err=True)
    return words


class LazyGroup(TyperGroup):
    """A command group that imports a subcommand when it runs."""

    def list_commands(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]
        return list(COMMANDS)

    def get_command(self, ctx: typer.Context, cmd_name: str) -> Any:  # type: ignore[override]
        if cmd_name not in COMMANDS:
            return None
        if cmd_name not in self.commands:
            self.add_command(_load(cmd_name), cmd_name)
        return self.commands[cmd_name]

    def format_commands(self, ctx: typer.Context, formatter: Any) -> None:  # type: ignore[override]
        """Write the summaries of all subcommands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, row.summary) for name, row in COMMANDS.items()])


@cache
def _root() -> Any:
    """Return the command of the whole program; its subcommands stay loaded."""
    return typer.main.get_command(app)


def _load(name: str) -> Any:
    module, _, attribute = COMMANDS[name].place.partition(":")
    found = getattr(import_module(module), attribute)
    if not isinstance(found, typer.Typer):
        single = plain_app()
        single.command(name)(found)
        found = single
    return typer.main.get_command(found)


def plain_app(**options: Any) -> typer.Typer:
    """Return a typer application with plain help texts and no completion options."""
    return typer.Typer(
        add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False, **options
    )


app = typer.Typer(
    cls=LazyGroup,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    invoke_without_command=True,
    context_settings={"help_option_names": ["--help", "-h"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"mitosis {__version__}")
        raise typer.Exit


@app.callback()
def mitosis(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Durable execution of task groups on fleets of machines.

    Start everything on this host with `mitosis up`; `mitosis doctor` reports what is missing.
    """
    if context.invoked_subcommand is None:
        typer.echo(context.get_help(), err=True)
        raise typer.Exit(2)
