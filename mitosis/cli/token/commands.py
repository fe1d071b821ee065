"""`mitosis token …`: who has valid tokens, and ending them."""

from typing import TYPE_CHECKING, Annotated

import typer

from mitosis.cli import plain_app
from mitosis.cli.arguments import LimitOption
from mitosis.cli.context import Cli
from mitosis.cli.registration import register
from mitosis.cli.rendering import Item, Table, time_text
from mitosis.contracts.errors import InvalidRequest

if TYPE_CHECKING:
    from mitosis.contracts.account_http import TokenHolder

app = plain_app()

OPTION_OF_FIELD = {"username": "--user", "manager_id": "--host", "worker_id": "--worker"}
KIND = {"user": "user", "manager": "host", "worker": "worker service"}


@app.callback()
def token() -> None:
    """List who has valid tokens, and revoke them."""


@register(app, "list")
def list_tokens(cli: Cli, limit: LimitOption = None) -> None:
    """List users, hosts and worker services with valid tokens that you may revoke.

    The tokens themselves are not stored: they are shown once, when they are issued.
    """
    with cli.client() as client:
        found = cli.take(client.token_holders(), limit)
    cli.output.table(
        Table(
            data=[one.model_dump(mode="json") for one in found],
            columns=("kind", "holder", "id", "version", "valid until"),
            rows=[_row(one) for one in found],
            ids=[str(one.id) for one in found],
            empty="no valid tokens",
        )
    )


@register(app, "revoke")
def revoke(
    cli: Cli,
    user: Annotated[str | None, typer.Option(metavar="USERNAME", help="Of this user.")] = None,
    host: Annotated[
        str | None, typer.Option(metavar="HOST", help="Of this host: name or id.")
    ] = None,
    worker: Annotated[
        str | None, typer.Option(metavar="WORKER", help="Of this worker service: its id.")
    ] = None,
) -> None:
    """End all tokens of a user, a host or a worker service within seconds, also on open streams.

    A user logs in again; the agent of a host ends, and starts again with a token of `mitosis manager token`;
    a worker service registers again.
    """
    from mitosis.cli.manager.find import find_manager
    from mitosis.cli.validation import named

    if sum(one is not None for one in (user, host, worker)) != 1:
        raise InvalidRequest("give exactly one of --user, --host and --worker")
    with named(OPTION_OF_FIELD), cli.client() as client:
        manager_id = None if host is None else find_manager(client, host).manager_id
        ended = client.revoke_tokens(username=user, manager_id=manager_id, worker_id=worker)
    holder = user or host or worker or ""
    fields = [("revoked", f"all tokens of the {KIND[ended.kind]} {holder}"), ("id", str(ended.id))]
    cli.output.item(Item(ended.model_dump(mode="json"), fields, str(ended.id)))


def _row(one: "TokenHolder") -> tuple[str, ...]:
    end = "not known" if one.valid_until is None else time_text(one.valid_until)
    return KIND[one.kind], one.name, str(one.id), str(one.token_version), end
