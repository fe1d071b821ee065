"""Turns a function into a typer command, with the options that every command has.

The function takes a :class:`Cli` first. Each further parameter is an option or argument of typer, or a
dataclass whose fields are options (typer itself knows only single parameters). An option annotated with
:class:`FormerNames` accepts these names too, without showing them. The function may return an exit
status; it raises ``MitosisError`` for errors that it can explain.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Annotated, Any, Protocol, get_args, get_origin, get_type_hints

import typer

from mitosis.cli.common_options import CommonOptions
from mitosis.cli.context import Cli
from mitosis.contracts.errors import MitosisError


class ExitRules(Protocol):
    """How a command with exit statuses of its own ends."""

    @property
    def help_text(self) -> str:
        """The sentence that lists the statuses in the help."""
        ...

    def report(self, error: MitosisError | BrokenPipeError, *, as_json: bool) -> int:
        """Print the error and return the exit status."""
        ...


@dataclass(frozen=True, slots=True)
class FormerNames:
    """Names that an option had in an earlier version. They are accepted and not shown."""

    names: tuple[str, ...]


def register(
    app: typer.Typer, name: str, *, exits: ExitRules | None = None, **settings: Any
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that adds a function to ``app`` as a command.

    ``settings`` are those of :meth:`typer.Typer.command`.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        app.command(name, **settings)(typer_function(function, exits))
        return function

    return decorate


def typer_function(
    function: Callable[..., Any], exits: ExitRules | None = None
) -> Callable[..., Any]:
    """Return ``function`` in the form that typer reads: every option is a keyword parameter."""
    own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
    values_of = {one.name: _value(one) for one in own}
    common = _Record(CommonOptions)

    def command(**typed: Any) -> Any:
        cli = Cli(common.read(typed))
        values = {name: value.read(typed) for name, value in values_of.items()}
        try:
            return function(cli, **values)
        except (MitosisError, BrokenPipeError) as error:
            if exits is None:
                raise
            return exits.report(error, as_json=cli.as_json)

    everything = [one for value in (*values_of.values(), common) for one in value.parameters]
    command.__signature__ = inspect.Signature(everything)  # type: ignore[attr-defined]
    command.__name__ = function.__name__
    command.__doc__ = inspect.getdoc(function)
    if exits is not None:
        command.__doc__ = f"{command.__doc__}\n\n{exits.help_text}"
    return command


class _Single:
    """One option or argument."""

    def __init__(self, name: str, annotation: Any, default: Any) -> None:
        self._name = name
        self._former = f"former_{name}"
        self.parameters = [_keyword(name, annotation, default)]
        if former := _former_names(annotation):
            hidden: Any = Annotated[get_args(annotation)[0], typer.Option(*former, hidden=True)]
            self.parameters.append(_keyword(self._former, hidden, default))

    def read(self, typed: Mapping[str, Any]) -> Any:
        value, former = typed[self._name], typed.get(self._former)
        if former is None:
            return value
        if isinstance(value, list):
            return [*value, *former]
        return former if value is None else value


class _Record:
    """A dataclass, made of one option for each of its fields."""

    def __init__(self, record: type[Any]) -> None:
        hints = get_type_hints(record, include_extras=True)
        self._make = record
        self._fields = {
            one.name: _Single(one.name, hints[one.name], one.default) for one in fields(record)
        }
        self.parameters = [
            parameter for value in self._fields.values() for parameter in value.parameters
        ]

    def read(self, typed: Mapping[str, Any]) -> Any:
        return self._make(**{name: value.read(typed) for name, value in self._fields.items()})


def _value(parameter: inspect.Parameter) -> _Single | _Record:
    kind: Any = parameter.annotation
    if isinstance(kind, type) and is_dataclass(kind):
        return _Record(kind)
    return _Single(parameter.name, parameter.annotation, parameter.default)


def _former_names(annotation: Any) -> tuple[str, ...]:
    if get_origin(annotation) is not Annotated:
        return ()
    found = (extra for extra in get_args(annotation)[1:] if isinstance(extra, FormerNames))
    return next((extra.names for extra in found), ())


def _keyword(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, default=default, annotation=annotation)
