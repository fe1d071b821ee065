"""`mitosis manager …`: the hosts that run tasks."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mitosis.cli import plain_app
from mitosis.cli.arguments import LimitOption
from mitosis.cli.context import Cli
from mitosis.cli.manager.find import find_manager
from mitosis.cli.manager.view import manager_item, managers_table
from mitosis.cli.registration import FormerNames, register
from mitosis.cli.rendering import Item, time_text
from mitosis.contracts.errors import InvalidRequest

if TYPE_CHECKING:
    from mitosis.contracts.http import RegisteredManager

app = plain_app()

OPTION_OF_FIELD = {
    "name": "NAME",
    "tags": "--tag",
    "labels": "--label",
    "groups": "--user-group",
    "lifetime": "--lifetime",
}


@app.callback()
def manager() -> None:
    """Managers: the hosts that run tasks."""


@register(app, "list")
def list_managers(
    cli: Cli,
    limit: LimitOption = None,
) -> None:
    """List managers with what they do now."""
    with cli.client() as client:
        cli.output.table(managers_table(cli.some(client.managers(), limit)))


@register(app, "show")
def show(
    cli: Cli,
    manager: Annotated[str, typer.Argument(metavar="MANAGER", help="Id or name of the manager.")],
) -> None:
    """Show one manager: state, cores, lease and environments."""
    with cli.client() as client:
        cli.output.item(manager_item(find_manager(client, manager)))


@register(app, "register")
def register_manager(
    cli: Cli,
    name: Annotated[str | None, typer.Argument(help="Name of the manager.")] = None,
    tag: Annotated[
        list[str] | None, typer.Option(help="A tag of the host; may be repeated.")
    ] = None,
    label: Annotated[list[str] | None, typer.Option(help="A label; may be repeated.")] = None,
    user_group: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME[:ROLE]", help="User group that it works for; repeatable."),
        FormerNames(("--group",)),
    ] = None,
    lifetime: Annotated[
        str | None, typer.Option(metavar="TIME", help="How long its token is good, as in 30d.")
    ] = None,
    save_token: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the token to this file (0600), do not print it."),
    ] = None,
) -> None:
    """Register a manager and get the token for its agent (shown this once)."""
    from mitosis.cli.validation import named, validated
    from mitosis.contracts.http import RegisterManager

    given = {"name": name, "tags": tag, "labels": label, "groups": user_group, "lifetime": lifetime}
    values: dict[str, Any] = {k: value for k, value in given.items() if value not in (None, [])}
    wanted = validated(RegisterManager, values, OPTION_OF_FIELD)
    if save_token is not None:
        _check_new(save_token)
    with named(OPTION_OF_FIELD), cli.client() as client:
        registered = client.register_manager(wanted)
    cli.output.item(registered_item(registered, save_token))


def registered_item(registered: "RegisteredManager", token_file: Path | None) -> Item:
    """The new manager; its token goes to the file when there is one, else into the output."""
    data = registered.model_dump(mode="json")
    fields = [
        ("manager", registered.name),
        ("id", str(registered.manager_id)),
        ("token good until", time_text(registered.expires_at)),
    ]
    if token_file is None:
        fields.append(("token", registered.token))
    else:
        from mitosis.embedded.data_folder import write_private

        write_private(token_file, registered.token.encode())
        del data["token"]
        data["token_file"] = str(token_file)
        fields.append(("token in", str(token_file)))
    return Item(data, fields, str(registered.manager_id))


def _check_new(path: Path) -> None:
    """Refuse, before anything is registered, a place where the token could not be kept."""
    if path.exists():
        raise InvalidRequest(f"{path} exists: name a new file", option="--save-token")
    if not path.parent.is_dir():
        raise InvalidRequest(f"the folder {path.parent} does not exist", option="--save-token")
