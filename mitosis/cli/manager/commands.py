"""`mitosis manager …`: lists, shows and registers hosts."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mitosis.cli import plain_app
from mitosis.cli.arguments import LimitOption
from mitosis.cli.context import Cli
from mitosis.cli.manager import verbs
from mitosis.cli.manager.find import find_manager
from mitosis.cli.manager.verbs import HostArgument
from mitosis.cli.manager.view import lifted_item, manager_item, managers_table, switching_table
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

OfTaskGroup = Annotated[
    str | None,
    typer.Option(metavar="GROUP", help="Only for this task group: id, NAME or USERGROUP/NAME."),
]


Lifetime = Annotated[
    str | None, typer.Option(metavar="TIME", help="How long the token is valid, as in 30d.")
]
SaveToken = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="Write the token to this file (0600) instead of printing it."
    ),
]


@app.callback()
def manager() -> None:
    """Manage the hosts that run tasks."""


@register(app, "list")
def list_managers(
    cli: Cli,
    limit: LimitOption = None,
) -> None:
    """List hosts with what they do now."""
    with cli.client() as client:
        cli.output.table(managers_table(cli.take(client.managers(), limit)))


@register(app, "switching")
def switching(cli: Cli) -> None:
    """Show the host time that switches between task groups have cost on each host, and saved.

    Lost are setups, teardowns, and the part of drains in which workers have nothing to do; saved are the
    setups of leases that began in an environment which an earlier one had left.
    """
    with cli.client() as client:
        cli.output.table(switching_table([*client.managers()]))


@register(app, "show")
def show(
    cli: Cli,
    manager: HostArgument,
) -> None:
    """Show one host: state, cores, lease and environments."""
    with cli.client() as client:
        cli.output.item(manager_item(find_manager(client, manager)))


for name, verb in verbs.COMMANDS.items():
    register(app, name)(verb)


@register(app, "retry-setup")
def retry_setup(cli: Cli, manager: HostArgument, task_group: OfTaskGroup = None) -> None:
    """Repeat a setup that failed on a host, after its cause was repaired.

    A failed setup is otherwise repeated only after a restart of the agent or a change of the hook.
    """
    with cli.client() as client:
        host = find_manager(client, manager)
        names = client.retry_setup(host.manager_id, task_group)
    cli.output.item(lifted_item(host.name, "setup is tried again for", names))


@register(app, "release-quarantine")
def release_quarantine(cli: Cli, manager: HostArgument, task_group: OfTaskGroup = None) -> None:
    """End the quarantine of a host whose tasks failed while they succeeded elsewhere."""
    with cli.client() as client:
        host = find_manager(client, manager)
        names = client.release_quarantine(host.manager_id, task_group)
    cli.output.item(lifted_item(host.name, "quarantine ended for", names))


@register(app, "register")
def register_manager(
    cli: Cli,
    name: Annotated[str | None, typer.Argument(help="Name of the host.")] = None,
    tag: Annotated[list[str] | None, typer.Option(help="A tag of the host; repeatable.")] = None,
    label: Annotated[list[str] | None, typer.Option(help="A label; repeatable.")] = None,
    user_group: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME[:ROLE]", help="User group that it works for; repeatable."),
        FormerNames(("--group",)),
    ] = None,
    lifetime: Lifetime = None,
    save_token: SaveToken = None,
) -> None:
    """Register a host and get the token for its agent, which is shown only once.

    Start the agent there with the token in MITOSIS_TOKEN, or with its file in MITOSIS_TOKEN_FILE. An
    agent that starts with the token of a user registers its host itself.
    """
    from mitosis.cli.validation import named, validated
    from mitosis.contracts.http import RegisterManager

    given = {"name": name, "tags": tag, "labels": label, "groups": user_group, "lifetime": lifetime}
    values: dict[str, Any] = {k: value for k, value in given.items() if value not in (None, [])}
    spec = validated(RegisterManager, values, OPTION_OF_FIELD)
    if save_token is not None:
        _check_new(save_token)
    with named(OPTION_OF_FIELD), cli.client() as client:
        registered = client.register_manager(spec)
    cli.output.item(registered_item(registered, save_token))


@register(app, "token")
def token(
    cli: Cli, manager: HostArgument, lifetime: Lifetime = None, save_token: SaveToken = None
) -> None:
    """Get a new token for the agent of a host, which is shown only once; earlier ones stay valid.

    For an agent whose token has expired or was revoked: start it with the new one in MITOSIS_TOKEN or
    MITOSIS_TOKEN_FILE. While an agent runs it renews its token itself. --quiet prints the token alone, or
    the file with --save-token.
    """
    from mitosis.cli.validation import positive_duration

    span = positive_duration(lifetime, "--lifetime")
    if save_token is not None:
        _check_new(save_token)
    with cli.client() as client:
        host = find_manager(client, manager)
        issued = client.issue_manager_token(host.manager_id, lifetime=span)
    data = {"manager_id": str(host.manager_id), "name": host.name, **issued.model_dump(mode="json")}
    fields = [
        ("host", host.name),
        ("id", str(host.manager_id)),
        ("token valid until", time_text(issued.expires_at)),
    ]
    shown = _with_token(data, fields, issued.token, save_token)
    cli.output.item(replace(shown, id=issued.token if save_token is None else str(save_token)))


def registered_item(registered: "RegisteredManager", token_file: Path | None) -> Item:
    """Return the new host; write its token to the file, or show it if there is none."""
    data = registered.model_dump(mode="json")
    fields = [
        ("host", registered.name),
        ("id", str(registered.manager_id)),
        ("token valid until", time_text(registered.expires_at)),
    ]
    return _with_token(data, fields, registered.token, token_file)


def _with_token(
    data: dict[str, Any], fields: list[tuple[str, str]], token: str, token_file: Path | None
) -> Item:
    """Return what is shown of a host; write its token to the file, or show it if there is none."""
    if token_file is None:
        fields.append(("token", token))
    else:
        from mitosis.embedded.data_folder import write_private

        write_private(token_file, token.encode())
        del data["token"]
        data["token_file"] = str(token_file)
        fields.append(("token file", str(token_file)))
    return Item(data, fields, str(data["manager_id"]))


def _check_new(path: Path) -> None:
    """Refuse a file that the token could not be written to, before the host is registered."""
    if path.exists():
        raise InvalidRequest(f"{path} exists; name a new file", option="--save-token")
    if not path.parent.is_dir():
        raise InvalidRequest(f"the folder {path.parent} does not exist", option="--save-token")
