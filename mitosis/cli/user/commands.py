"""`mitosis user …`: accounts, their passwords and locks."""

from typing import TYPE_CHECKING, Annotated, cast

import typer

from mitosis.cli import plain_app
from mitosis.cli.account import PasswordFile, read_password
from mitosis.cli.arguments import LimitOption
from mitosis.cli.context import Cli
from mitosis.cli.registration import register
from mitosis.cli.rendering import Item, Table, time_text
from mitosis.cli.user.keep import keep
from mitosis.contracts.accounts import RANK, Role
from mitosis.contracts.errors import InvalidRequest

if TYPE_CHECKING:
    from mitosis.contracts.account_http import UserInfo

app = plain_app()

OPTION_OF_FIELD = {
    "username": "USERNAME",
    "password": "--password-file",
    "current_password": "--current-password-file",
    "groups": "--role",
}
UserArgument = Annotated[str, typer.Argument(metavar="USERNAME", help="Name of the user.")]


@app.callback()
def user() -> None:
    """Make, lock and list accounts, set passwords, and say how long task groups are kept."""


register(app, "keep")(keep)


@register(app, "list")
def list_users(cli: Cli, limit: LimitOption = None) -> None:
    """List accounts with their roles; for administrators."""
    with cli.client() as client:
        found = cli.take(client.users(), limit)
    rows = [
        (one.username, _kind(one), one.state, _roles(one), time_text(one.created_at))
        for one in found
    ]
    cli.output.table(
        Table(
            data=[one.model_dump(mode="json") for one in found],
            columns=("user", "kind", "state", "user groups", "made"),
            rows=rows,
            ids=[one.username for one in found],
            empty="no users",
        )
    )


@register(app, "add")
def add(
    cli: Cli,
    username: UserArgument,
    role: Annotated[
        list[str] | None,
        typer.Option(
            metavar="USERGROUP:ROLE",
            help="A role (read, write or admin) in a user group that exists; repeatable.",
        ),
    ] = None,
    administrator: Annotated[
        bool, typer.Option("--administrator", help="Give it every role everywhere.")
    ] = False,
    password_file: PasswordFile = None,
) -> None:
    """Make an account, and a user group of its name in which it is admin; for administrators.

    The user logs in with `mitosis login`.
    """
    from mitosis.cli.validation import named

    groups = dict(_role(text) for text in role or [])
    password = read_password(password_file, twice=True)
    with named(OPTION_OF_FIELD), cli.client() as client:
        made = client.add_user(username, password, is_admin=administrator, groups=groups)
    cli.output.item(_item(made))


@register(app, "passwd")
def passwd(
    cli: Cli,
    username: Annotated[
        str | None, typer.Argument(metavar="USERNAME", help="Name of the user. [default: yourself]")
    ] = None,
    current_password_file: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="File with the current password. [default: ask for it]"),
    ] = None,
    password_file: PasswordFile = None,
) -> None:
    """Set a password; all tokens of the user end.

    An administrator needs no current password. Log in again afterwards with `mitosis login`.
    """
    from pathlib import Path

    from mitosis.cli.validation import named

    with named(OPTION_OF_FIELD), cli.client() as client:
        me = client.me()
        current = None
        if not me.is_admin:
            file = Path(current_password_file) if current_password_file is not None else None
            current = read_password(file, "Current password")
        password = read_password(password_file, "New password", twice=True)
        changed = client.change_password(
            username or me.username, password, current_password=current
        )
    cli.output.item(_item(changed))


@register(app, "lock")
def lock(cli: Cli, username: UserArgument) -> None:
    """Lock an account: it cannot log in, and its tokens end within seconds; for administrators.

    Hosts and worker services that it has registered go on: `mitosis token revoke` ends theirs.
    """
    from mitosis.cli.validation import named

    with named(OPTION_OF_FIELD), cli.client() as client:
        cli.output.item(_item(client.lock_user(username)))


@register(app, "unlock")
def unlock(cli: Cli, username: UserArgument) -> None:
    """Unlock an account; its earlier tokens stay dead, so the user logs in again."""
    from mitosis.cli.validation import named

    with named(OPTION_OF_FIELD), cli.client() as client:
        cli.output.item(_item(client.unlock_user(username)))


def _role(text: str) -> tuple[str, Role]:
    """Parse USERGROUP:ROLE.

    Raises:
        InvalidRequest: it is something else.
    """
    group, colon, role = text.rpartition(":")
    if not (group and colon and role in RANK):
        raise InvalidRequest(
            f"write USERGROUP:ROLE with the role read, write or admin, not {text!r}",
            option="--role",
        )
    return group, cast("Role", role)


def _item(one: "UserInfo") -> Item:
    fields = [
        ("user", one.username),
        ("id", str(one.user_id)),
        ("kind", _kind(one)),
        ("state", one.state),
        ("user groups", _roles(one)),
    ]
    return Item(one.model_dump(mode="json"), fields, one.username)


def _kind(one: "UserInfo") -> str:
    return "administrator" if one.is_admin else "user"


def _roles(one: "UserInfo") -> str:
    return ", ".join(f"{name} ({role})" for name, role in sorted(one.groups.items())) or "none"
