"""`mitosis job check` and `mitosis job schema`: what is wrong with a file, and what may be in one."""

from mitosis.cli.context import Cli
from mitosis.cli.job.arguments import FileArgument, read_job_file
from mitosis.cli.rendering import Item


def check(cli: Cli, file: FileArgument) -> None:
    """Check a definition and list all that is wrong with it, by line and column."""
    from mitosis.jobs.canonical import digest

    definition = read_job_file(file)
    facts = {
        "file": str(file),
        "name": definition.name,
        "steps": len(definition.steps),
        "parameters": sorted(definition.parameters),
        "digest": digest(definition),
    }
    steps = f"{len(definition.steps)} step{'' if len(definition.steps) == 1 else 's'}"
    fields = [
        ("job", definition.name),
        ("steps", steps),
        ("parameters", ", ".join(sorted(definition.parameters)) or "none"),
        ("digest", str(facts["digest"])),
    ]
    cli.output.item(Item(facts, fields, definition.name))


def schema(cli: Cli) -> None:
    """Print the JSON Schema of definitions, for editors and other tools."""
    import json

    import typer

    from mitosis.jobs.json_schema import definition_schema

    typer.echo(json.dumps(definition_schema(), indent=2, sort_keys=True))
