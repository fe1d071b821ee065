"""Makes a typer command of a function: adds the options that every command has.

A command function takes a :class:`Cli` first and its own parameters after it. It may return an exit
status; it raises ``MitosisError`` for everything that can be said to people.
"""

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any

import typer

from mitosis.cli.arguments import ApiOption, DataDirOption, JsonOption, QuietOption, TokenFileOption
from mitosis.cli.context import Cli


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
