"""The options of `mitosis group submit`, one type each."""

from pathlib import Path
from typing import Annotated

import typer

ArgvArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="COMMAND", help="One task: a program and its arguments, written after --."
    ),
]
CommandFileOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="One command a line, quoted as in a shell (- = stdin)."),
]
JsonFileOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="A JSON array of tasks, or one a line (- = stdin)."),
]
HandlerOption = Annotated[
    str | None, typer.Option(metavar="MODULE:FUNCTION", help="One task: a Python function.")
]
ArgumentsOption = Annotated[
    str | None, typer.Option(metavar="JSON", help="Its arguments: a JSON object or array.")
]
PriorityOption = Annotated[int | None, typer.Option(help="Higher goes first in the group.")]
TimeoutOption = Annotated[
    str | None, typer.Option(metavar="TIME", help="End it after this long, as in 10m.")
]
KillGraceOption = Annotated[
    str | None, typer.Option(metavar="TIME", help="From SIGTERM to SIGKILL.")
]
EnvOption = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=VALUE", help="Environment variable; may be repeated."),
]
CwdOption = Annotated[
    str | None, typer.Option(metavar="FOLDER", help="Working directory on the host.")
]
DedupKeyOption = Annotated[
    str | None, typer.Option(help="Not again while an unfinished task has this key.")
]
RetriesOption = Annotated[int | None, typer.Option(help="How often a failed task is tried again.")]
LabelOption = Annotated[list[str] | None, typer.Option(help="A label; may be repeated.")]
IdempotencyKeyOption = Annotated[
    str | None, typer.Option(help="The same key again submits nothing twice.")
]
