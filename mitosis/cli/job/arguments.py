"""Arguments of the commands of jobs: files of definitions, and parameters as NAME=VALUE."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mitosis.cli.input_files import STANDARD_INPUT, read_bytes
from mitosis.contracts.errors import InvalidRequest

if TYPE_CHECKING:
    from mitosis.jobs.definition import JobDefinition

FileArgument = Annotated[
    Path, typer.Argument(metavar="FILE", help="Definition in YAML or JSON (- = stdin).")
]
ParametersOption = Annotated[
    list[str] | None,
    typer.Option(
        "--param",
        "-p",
        metavar="NAME=VALUE",
        help="Value of a parameter: text, or JSON for another type; repeatable.",
    ),
]


def read_job_file(path: Path) -> "JobDefinition":
    """Return the definition in a file, or in standard input for ``-``.

    Raises:
        InvalidRequest: it cannot be read, or lists all problems with line and column.
    """
    from mitosis.jobs.loading import read_definition
    from mitosis.jobs.yaml_text import MAX_BYTES

    content = read_bytes(path, "FILE", MAX_BYTES)
    return read_definition(content, "stdin" if path == STANDARD_INPUT else str(path))


def parameters(definition: "JobDefinition", given: Sequence[str] | None) -> dict[str, Any]:
    """Return the values of ``-p NAME=VALUE``, by name; not checked for what is missing.

    Raises:
        InvalidRequest: an option has no ``=``, names a parameter twice or one that the job lacks, or has
            a value of another type.
    """
    from mitosis.jobs.parameters import parse_value

    values: dict[str, Any] = {}
    for text in given or ():
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise InvalidRequest(f"must be NAME=VALUE, not {text!r:.60}", option="-p")
        if name in values:
            raise InvalidRequest(f"gives {name} twice", option="-p")
        values[name] = parse_value(definition, name, value)
    return values
