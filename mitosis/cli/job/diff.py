"""`mitosis job diff`: what differs between two definitions."""

from pathlib import Path
from typing import Annotated

import typer

from mitosis.cli.context import Cli
from mitosis.cli.job.arguments import FileArgument, read_job_file
from mitosis.cli.rendering import printable


def diff(
    cli: Cli,
    file: FileArgument,
    other: Annotated[Path, typer.Argument(metavar="OTHER", help="The later definition.")],
) -> None:
    """Show what differs between two definitions: steps, fields and parameters."""
    from mitosis.jobs.difference import changes_between

    changes = changes_between(read_job_file(file), read_job_file(other))
    if cli.as_json:
        import json

        typer.echo(json.dumps([one.document() for one in changes]))
        return
    if not changes:
        cli.hint("the definitions are the same")
    for one in changes:
        typer.echo(printable(one.text()))
