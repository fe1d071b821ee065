"""`mitosis temporal`: runs the bundled Temporal CLI with the server and namespace of the stack."""

import os
from collections.abc import Sequence
from itertools import takewhile
from typing import Annotated

import typer

from mitosis.cli import plain_app

app = plain_app()

_PRINTS = frozenset({"-h", "--help", "-v", "--version"})


@app.command("temporal")
def temporal(
    arguments: Annotated[
        list[str] | None, typer.Argument(help="Arguments of the Temporal CLI, including --help.")
    ] = None,
) -> None:
    """Run the bundled Temporal CLI.

    TEMPORAL_ADDRESS and TEMPORAL_NAMESPACE are set from the running stack or the settings.
    """
    from mitosis.contracts.errors import TemporalUnavailable
    from mitosis.embedded.temporal_program import find_temporal_binary

    program = str(find_temporal_binary())
    environment = dict(os.environ)
    try:
        environment |= temporal_environment()
    except TemporalUnavailable:
        if needs_server(arguments or []):
            raise
    os.execve(program, [program, *(arguments or [])], environment)  # noqa: S606 - argv, no shell


def needs_server(arguments: Sequence[str]) -> bool:
    """Return whether the Temporal CLI connects to a server, instead of printing something about itself."""
    words = list(takewhile(lambda word: word != "--", arguments))
    about_itself = not words or words[0] in ("help", "completion")
    return not (about_itself or _PRINTS & {*words})


def temporal_environment() -> dict[str, str]:
    """Return TEMPORAL_ADDRESS and TEMPORAL_NAMESPACE from the settings or the running stack.

    Raises:
        TemporalUnavailable: no address is set and no stack runs.
    """
    from mitosis.cli.connection import START, data_dir_of, read_connection
    from mitosis.contracts.errors import TemporalUnavailable
    from mitosis.settings import load_settings

    loaded = load_settings()
    configured = loaded.settings.temporal
    if configured.address is not None:
        environment = {
            "TEMPORAL_ADDRESS": configured.address,
            "TEMPORAL_NAMESPACE": configured.namespace,
        }
        if configured.tls:
            environment["TEMPORAL_TLS"] = "true"
        if configured.api_key is not None:
            environment["TEMPORAL_API_KEY"] = configured.api_key.get_secret_value()
        return environment
    data_dir = data_dir_of(loaded.settings)
    stack = read_connection(data_dir)
    if stack is None:
        raise TemporalUnavailable(
            f"no stack runs on the data folder {data_dir}, and no Temporal address is given",
            hint=f"{START}\n  or name a running server with MITOSIS_TEMPORAL_ADDRESS",
        )
    return {
        "TEMPORAL_ADDRESS": stack.temporal_address,
        "TEMPORAL_NAMESPACE": stack.temporal_namespace,
    }
