"""`mitosis config`: the settings in force, and the origin of each."""

from typing import Annotated

import typer

from mitosis.cli import plain_app
from mitosis.cli.context import Cli
from mitosis.cli.registration import register
from mitosis.cli.rendering import Table

app = plain_app()


@app.callback()
def config() -> None:
    """Show the settings of this host."""


@register(app, "show")
def show(
    cli: Cli,
    everything: Annotated[
        bool, typer.Option("--all", "-a", help="Include settings that have their default.")
    ] = False,
) -> None:
    """Show the settings and the origin of each; secrets are masked."""
    lines = [line for line in cli.loaded.lines() if everything or line[2] != "default"]
    cli.output.table(
        Table(
            data={key: {"value": value, "origin": origin} for key, value, origin in lines},
            columns=("setting", "value", "origin"),
            rows=lines,
            ids=[key for key, _, _ in lines],
            empty="every setting has its default (show them with --all)",
        )
    )
