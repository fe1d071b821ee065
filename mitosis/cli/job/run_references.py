"""References to runs on the command line: an id, or ``@last``."""

from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from mitosis.contracts.errors import InvalidRequest, NotFound

if TYPE_CHECKING:
    from mitosis.client.sync import SyncClient

LAST = "@last"


def check_run(text: str) -> str:
    """Return the reference if it is well-formed.

    Raises:
        InvalidRequest: it is neither an id nor ``@last``.
    """
    if text != LAST and as_id(text) is None:
        raise InvalidRequest(
            f"{text!r:.100} is not a run; write its id, or {LAST} for the last run that you started "
            "(list them with: mitosis job runs)",
            option="RUN",
        )
    return text


RunArgument = Annotated[
    str,
    typer.Argument(
        metavar="RUN",
        help=f"Id of a run, or {LAST}: the last one that you started.",
        callback=check_run,
    ),
]


def as_id(text: str) -> UUID | None:
    """Return the text as an id; None if it is something else, such as a name."""
    try:
        return UUID(text)
    except ValueError:
        return None


def run_id_of(client: "SyncClient", run: str) -> UUID:
    """Return the id of a run, given as id or as ``@last``.

    Raises:
        NotFound: the user has started none.
    """
    return as_id(run) or _last_run(client)


def _last_run(client: "SyncClient") -> UUID:
    me = client.me().username
    for one in client.runs(created_by=me):
        return one.run_id
    raise NotFound(f"{me} has started no run; start one with: mitosis job start NAME|FILE")
