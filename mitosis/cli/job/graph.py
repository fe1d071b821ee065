"""`mitosis job graph`: the steps of a definition as a tree of text, or as an SVG image."""

from typing import Annotated

import typer

from mitosis.cli.context import Cli
from mitosis.cli.job.arguments import FileArgument, read_job_file
from mitosis.contracts.errors import InvalidRequest


def graph(
    cli: Cli,
    file: FileArgument,
    svg: Annotated[bool, typer.Option("--svg", help="Print an SVG image.")] = False,
) -> None:
    """Draw the steps of a definition and their order."""
    from mitosis.jobs.drawing import edges_of, text_graph
    from mitosis.jobs.svg import svg_graph

    definition = read_job_file(file)
    if not cli.as_json:
        typer.echo(svg_graph(definition) if svg else text_graph(definition), nl=not svg)
        return
    if svg:
        raise InvalidRequest("is an image; leave out --json", option="--svg")
    import json

    edges = [
        {"from": one.before, "to": one.after, "on": str(one.outcome)}
        for one in edges_of(definition)
    ]
    typer.echo(json.dumps({"steps": sorted(definition.steps), "edges": edges}))
