"""Arguments and options that several commands have, one type each."""

from typing import Annotated, Literal

import typer

from mitosis.cli.completion import group_names
from mitosis.cli.references import check_reference

GroupArgument = Annotated[
    str,
    typer.Argument(
        metavar="GROUP",
        help="Id, name, or user group/name of the task group.",
        callback=check_reference,
        autocompletion=group_names,
    ),
]
LimitOption = Annotated[
    int | None,
    typer.Option(min=0, help="How many; 0 is all. [default: 50, all with --json or --quiet]"),
]
ProgressOption = Annotated[
    Literal["auto", "rich", "plain", "none"], typer.Option("--progress", help="What to show.")
]
