"""Arguments and options that several commands have, one type each."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from mitosis.cli.completion import group_names
from mitosis.cli.references import check_reference

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, errors too.")]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Print ids or names only.")]
ApiOption = Annotated[
    str | None,
    typer.Option("--api", metavar="URL", help="API to talk to [env: MITOSIS_API_URL]."),
]
TokenFileOption = Annotated[
    Path | None,
    typer.Option(
        "--token-file",
        metavar="FILE",
        help="File with the token [env: MITOSIS_TOKEN_FILE, or MITOSIS_TOKEN the token itself].",
    ),
]
DataDirOption = Annotated[
    Path | None,
    typer.Option(
        "--data-dir",
        metavar="FOLDER",
        help="Data folder of the stack to talk to [env: MITOSIS_DATA_DIR].",
    ),
]
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
