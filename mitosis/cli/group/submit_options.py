"""Options of `mitosis group submit`; `mitosis run` has some of them too."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

TimeoutOption = Annotated[
    str | None, typer.Option(metavar="TIME", help="Kill each task after this long, as in 10m.")
]
EnvOption = Annotated[
    list[str] | None,
    typer.Option(
        "--env",
        metavar="NAME[=VALUE]",
        help="Environment variable; NAME alone takes the value it has here, which no other user of this"
        " machine can then see; repeatable.",
    ),
]
RetriesOption = Annotated[int | None, typer.Option(help="How often a failed task runs again.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSources:
    """Where the tasks come from; exactly one source is given."""

    argv: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="COMMAND", help="One task: a program and its arguments, written after --."
        ),
    ] = None
    command_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="One command per line, quoted as in a shell (- = stdin)."
        ),
    ] = None
    json_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="A JSON array of tasks, or one task per line (- = stdin)."
        ),
    ] = None
    handler: Annotated[
        str | None, typer.Option(metavar="MODULE:FUNCTION", help="One task: a Python function.")
    ] = None
    named_task: Annotated[
        str | None,
        typer.Option(
            metavar="NAMESPACE/NAME@VERSION",
            help="One task that worker services execute; the version may be latest.",
        ),
    ] = None
    arguments: Annotated[
        str | None,
        typer.Option(
            metavar="JSON",
            help="Arguments of the function or named task: a JSON object or array.",
        ),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOptions:
    """Options that apply to every task of one submission."""

    priority: Annotated[
        int | None, typer.Option(help="A higher number runs first within the task group.")
    ] = None
    timeout: TimeoutOption = None
    kill_grace: Annotated[
        str | None, typer.Option(metavar="TIME", help="Time from SIGTERM to SIGKILL.")
    ] = None
    env: EnvOption = None
    cwd: Annotated[
        str | None, typer.Option(metavar="FOLDER", help="Working directory on the host.")
    ] = None
    dedup_key: Annotated[
        str | None,
        typer.Option(help="Submit nothing while an unfinished task has this deduplication key."),
    ] = None
    retries: RetriesOption = None
    label: Annotated[list[str] | None, typer.Option(help="A label; repeatable.")] = None
    after: Annotated[
        list[int] | None,
        typer.Option(
            metavar="TASK", help="Start when the task with this number has succeeded; repeatable."
        ),
    ] = None
