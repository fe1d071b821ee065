"""Makes a typer command of a function: adds the options that every command has.

A command function takes a :class:`Cli` first and its own parameters after it. It may return an exit
status; it raises ``MitosisError`` for everything that can be said to people.
"""

import inspect
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import cached_property, wraps
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from mitosis.cli.completion import group_names
from mitosis.cli.output import Output, choose_output
from mitosis.contracts.errors import ApiUnavailable, InvalidRequest, Unauthenticated

if TYPE_CHECKING:  # heavy: imported when a command needs them, so that --help and errors are quick
    from mitosis.cli.connection import Target
    from mitosis.client.sync import SyncClient
    from mitosis.settings import Loaded, Settings

T = TypeVar("T")

REFERENCE = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?", re.ASCII)
SCREENFUL = 50
PATIENCE = timedelta(seconds=2)
"""How long a command repeats a call that may be repeated, before it says that nothing answers."""

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, errors too.")]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Print ids or names only.")]
ApiOption = Annotated[
    str | None,
    typer.Option("--api", metavar="URL", help="API to talk to [env: MITOSIS_API_URL]."),
]
TokenFileOption = Annotated[
    Path | None,
    typer.Option(
        "--token-file",
        metavar="FILE",
        help="File with the token [env: MITOSIS_TOKEN_FILE, or MITOSIS_TOKEN the token itself].",
    ),
]
DataDirOption = Annotated[
    Path | None,
    typer.Option(
        "--data-dir",
        metavar="FOLDER",
        help="Data folder of the stack to talk to [env: MITOSIS_DATA_DIR].",
    ),
]


def check_reference(text: str) -> str:
    """A task group as people name it; anything else must not become part of a URL.

    Raises:
        InvalidRequest: says what would be right.
    """
    if not REFERENCE.fullmatch(text):
        raise InvalidRequest(
            f"{text!r} is not the id or name of a task group; write NAME, USERGROUP/NAME or an id",
            option="GROUP",
        )
    return text


GroupArgument = Annotated[
    str,
    typer.Argument(
        metavar="GROUP",
        help="Id, name, or user group/name of the task group.",
        callback=check_reference,
        autocompletion=group_names,
    ),
]
LimitOption = Annotated[
    int | None,
    typer.Option(min=0, help="How many; 0 is all. [default: 50, all with --json or --quiet]"),
]


class Cli:
    """What a command has at hand: settings, output, and the API when it asks for it."""

    def __init__(self, overrides: dict[str, Any], *, as_json: bool, quiet: bool) -> None:
        self._overrides = overrides
        self.as_json = as_json
        self._quiet = quiet
        self.output: Output = choose_output(as_json=as_json, quiet=quiet)

    @cached_property
    def loaded(self) -> "Loaded":
        """The settings, command line first.

        Raises:
            SettingsError: a setting is unknown or not valid.
        """
        from mitosis.settings import load_settings

        return load_settings(self._overrides)

    @property
    def settings(self) -> "Settings":
        return self.loaded.settings

    def some(self, items: Iterator[T], limit: int | None) -> list[T]:
        """The first ``limit`` of a list; None is everything, but a screenful for a table."""
        if limit is None:
            limit = 0 if self.as_json or self._quiet else SCREENFUL
        if limit == 0:
            return list(items)
        found = list(islice(items, limit + 1))
        if len(found) > limit:
            self.hint(f"the first {limit}; there are more: --limit N, or --limit 0 for all")
        return found[:limit]

    def hint(self, text: str) -> None:
        """Tell people something beside the output; programs that read JSON are spared."""
        if not self.as_json:
            typer.echo(text, err=True)

    @property
    def named_target(self) -> str | None:
        """The option of this command line that says which API to talk to."""
        options = {"api.url": "--api", "api.token_file": "--token-file", "data_dir": "--data-dir"}
        named = (option for key, option in options.items() if self._overrides.get(key) is not None)
        return next(named, None)

    @cached_property
    def target(self) -> "Target":
        """The API that the settings or the running stack name.

        Raises:
            ApiUnavailable: there is none; says what to do.
        """
        from mitosis.cli.connection import find_api

        return find_api(self.settings)

    @contextmanager
    def client(self) -> Iterator["SyncClient"]:
        """The API, as the user of the token.

        Raises:
            ApiUnavailable: nothing runs, or nothing answers at the address; says what to do.
            Unauthenticated: says how to log in.
        """
        from mitosis.cli.connection import START
        from mitosis.client.sync import SyncClient

        target = self.target
        try:
            with SyncClient(target.api_url, target.token, give_up_after=PATIENCE) as client:
                yield client
        except ApiUnavailable as error:
            error.facts.setdefault("hint", f"the address is from {target.origin}; {START}")
            raise
        except Unauthenticated as error:
            error.facts.setdefault("hint", "log in with: mitosis login USERNAME")
            raise


def register(app: typer.Typer, name: str | None = None) -> Callable[[Callable[..., Any]], Any]:
    """Decorator: make ``function(cli, …)`` a command of ``app``, with the common options added."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        app.command(name)(with_cli(function))
        return function

    return decorate


def with_cli(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function`` without its first parameter (a :class:`Cli`) and with the common options."""
    own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
    common = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=option)
        for name, option, default in (
            ("api_url", ApiOption, None),
            ("token_file", TokenFileOption, None),
            ("data_dir", DataDirOption, None),
            ("as_json", JsonOption, False),
            ("quiet", QuietOption, False),
        )
    ]

    @wraps(function)
    def command(**values: Any) -> Any:
        overrides = {
            "api.url": values.pop("api_url"),
            "api.token_file": values.pop("token_file"),
            "data_dir": values.pop("data_dir"),
        }
        cli = Cli(overrides, as_json=values.pop("as_json"), quiet=values.pop("quiet"))
        return function(cli, **values)

    keyword = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in own]
    command.__signature__ = inspect.Signature([*keyword, *common])  # type: ignore[attr-defined]
    del command.__wrapped__
    return command
