"""`mitosis login`, `logout` and `whoami`: the user that the API sees."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from mitosis.cli.context import Cli
from mitosis.cli.registration import typer_function
from mitosis.cli.rendering import Item, time_text

PasswordFile = Annotated[
    Path | None,
    typer.Option(
        "--password-file",
        metavar="FILE",
        help="File with the password, - for standard input. [default: ask for it]",
    ),
]


@typer_function
def login(
    cli: Cli,
    username: Annotated[str, typer.Argument(metavar="USERNAME", help="Name of the user.")],
    password_file: PasswordFile = None,
) -> None:
    """Get a token with a password.

    The token is stored for this API address in a file that only you can read.
    """
    from mitosis.cli.connection import store_token

    password = read_password(password_file)
    with cli.client() as client:
        answer = client.login(username, password)
    kept_in = store_token(cli.target.http_url, answer.token)
    data = {
        "username": username,
        "expires_at": answer.expires_at.isoformat(),
        "kept_in": str(kept_in),
    }
    fields = [
        ("user", username),
        ("valid until", time_text(answer.expires_at)),
        ("stored in", str(kept_in)),
    ]
    cli.output.item(Item(data, fields, username))


@typer_function
def logout(cli: Cli) -> None:
    """Delete the token that a login stored for this API address.

    The token itself remains valid until it expires.
    """
    from mitosis.cli.connection import store_token

    store_token(cli.target.http_url, None)
    url = cli.target.http_url
    cli.output.item(Item({"api_url": url}, [("deleted", f"the login for {url}")], url))


@typer_function
def whoami(cli: Cli) -> None:
    """Show the user of the token."""
    with cli.client() as client:
        me = client.me()
    groups = ", ".join(f"{name} ({role})" for name, role in sorted(me.groups.items()))
    fields = [
        ("user", me.username),
        ("id", str(me.user_id)),
        ("administrator", "yes" if me.is_admin else "no"),
        ("user groups", groups or "none"),
    ]
    cli.output.item(Item(me.model_dump(mode="json"), fields, me.username))


def read_password(file: Path | None, prompt: str = "Password", *, twice: bool = False) -> str:
    """Return the password in a file (- for standard input), or ask for it on the terminal.

    Raises:
        InvalidRequest: there is no terminal to ask on.
    """
    from mitosis.cli.input_files import read_text
    from mitosis.contracts.bounded_files import MOST_SECRET_BYTES

    if file is not None:
        return read_text(file, "--password-file", MOST_SECRET_BYTES).rstrip("\n")
    if not sys.stdin.isatty():
        from mitosis.contracts.errors import InvalidRequest

        raise InvalidRequest(
            "there is no terminal to ask for the password: name a file, or - for standard input",
            option="--password-file",
        )
    asked = typer.prompt(prompt, hide_input=True, err=True, confirmation_prompt=twice)
    return str(asked)
