"""Jobs in Python: ``@step`` on functions, and :class:`Job`, which makes the same definition as YAML.

Light like ``mitosis.handlers``: the modules of a user's steps import this in every worker. The models are
imported when a definition is made.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeAlias, TypeVar, overload

from mitosis.contracts.errors import AlreadyExists, InvalidRequest
from mitosis.contracts.json_depth import MAX_DEPTH
from mitosis.contracts.main_module import MAIN, main_module
from mitosis.contracts.mismatch import joined_path
from mitosis.handlers import Handler

if TYPE_CHECKING:
    from mitosis.jobs.definition import JobDefinition

P = ParamSpec("P")
R = TypeVar("R")


class StepFunction(Handler[P, R], Generic[P, R]):
    """A function that is a step of jobs. Calling it calls the function directly."""

    def __init__(
        self, function: Callable[P, R], fields: Mapping[str, Any], name: str | None = None
    ) -> None:
        """Use :func:`step`.

        Raises:
            InvalidRequest: workers could not import the function by name; says what to do.
        """
        super().__init__(function, {})
        self.name = name or function.__name__
        """The name of the step."""
        self.fields = dict(fields)
        """The fields of the step, as in YAML."""

    @property
    def handler(self) -> str:
        """``module:function``, as workers import it.

        Raises:
            InvalidRequest: it is in a script that workers cannot import; says what to do.
        """
        module, name = self.function.__module__, self.function.__qualname__
        return f"{main_module(name).module if module == MAIN else module}:{name}"

    def __repr__(self) -> str:
        return f"<step {self.name}: {self.function.__module__}:{self.function.__qualname__}>"


StepLike: TypeAlias = "StepFunction[Any, Any] | str"
After: TypeAlias = "StepLike | Iterable[StepLike] | Mapping[Any, str]"


@overload
def step(function: Callable[P, R], /) -> StepFunction[P, R]: ...
@overload
def step(
    *, name: str | None = None, after: Any = None, **fields: Any
) -> Callable[[Callable[P, R]], StepFunction[P, R]]: ...
def step(
    function: Callable[P, R] | None = None,
    /,
    *,
    name: str | None = None,
    after: Any = None,
    **fields: Any,
) -> StepFunction[P, R] | Callable[[Callable[P, R]], StepFunction[P, R]]:
    """Mark a function as a step: ``@step`` or ``@step(after=prepare, count=200)``.

    Args:
        function: at module level of an importable module.
        name: of the step; that of the function by default.
        after: a step, several, or a mapping of steps to ``"success"``, ``"failure"``, ``"always"`` or
            ``"each"``.
        fields: those of a step in YAML, such as ``arguments``, ``retry``, ``when``.

    Raises:
        InvalidRequest: workers could not import the function by name; says what to do.
    """
    given = fields if after is None else {**fields, "after": after}
    if function is not None:
        return StepFunction(function, given, name)
    return lambda function: StepFunction(function, given, name)


class Job:
    """A job in Python: steps, parameters and settings; checked as a whole by :meth:`definition`."""

    def __init__(
        self, name: str, *, steps: Iterable[StepFunction[Any, Any]] = (), **fields: Any
    ) -> None:
        """Make a job of functions marked with ``@step``; :meth:`command` and :meth:`task` add others.

        Args:
            name: of the job.
            steps: functions.
            fields: those of a job in YAML, such as ``parameters``, ``groups``, ``timeout``.
        """
        self._fields: dict[str, Any] = {"name": name, **fields}
        self._steps: dict[str, dict[str, Any]] = {}
        for one in steps:
            self.add(one)

    def add(self, function: StepFunction[Any, Any], **fields: Any) -> str:
        """Add a function marked with ``@step`` and return the name of the step.

        ``fields`` override those of the decorator.

        Raises:
            AlreadyExists: the job has a step of this name.
            InvalidRequest: workers could not import the function; says what to do.
        """
        given = {**function.fields, **fields}
        if "handler" not in given:
            given = {"handler": function.handler, **given}
        return self._add(function.name, given)

    def command(self, name: str, command: Iterable[str], **fields: Any) -> str:
        """Add a step that runs a command, given as its words, and return the name of the step.

        Raises:
            AlreadyExists: the job has a step of this name.
        """
        words = command if isinstance(command, str) else list(command)
        return self._add(name, {"command": words, **fields})

    def task(self, name: str, named_task: str, **fields: Any) -> str:
        """Add a step that a worker service executes and return the name of the step.

        Raises:
            AlreadyExists: the job has a step of this name.
        """
        return self._add(name, {"named_task": named_task, **fields})

    def fields(self) -> dict[str, Any]:
        """Return the fields of the definition as JSON values, not checked.

        Raises:
            InvalidRequest: a value contains itself, or is nested too deep.
        """
        plain: dict[str, Any] = _plain({**self._fields, "steps": self._steps})
        return plain

    def definition(self) -> "JobDefinition":
        """Return the definition.

        Raises:
            InvalidRequest: lists all that is wrong with it.
        """
        from mitosis.jobs.reading import definition_of

        return definition_of(self.fields())

    def to_yaml(self) -> str:
        """Return the definition as YAML, without what has its default.

        Raises:
            InvalidRequest: lists all that is wrong with it.
        """
        from mitosis.jobs.canonical import plain_fields
        from mitosis.jobs.yaml_text import write_yaml

        return write_yaml(plain_fields(self.definition()))

    def _add(self, name: str, fields: dict[str, Any]) -> str:
        if name in self._steps:
            raise AlreadyExists(f"the job has a step {name} already; give this one another name")
        self._steps[name] = fields
        return name


def _plain(value: Any, path: tuple[str | int, ...] = ()) -> Any:
    """Return the JSON form: steps by their names, durations in seconds."""
    if len(path) > MAX_DEPTH:
        raise InvalidRequest(
            f"is nested deeper than {MAX_DEPTH} levels, or contains itself",
            field=joined_path(path[:3]),
        )
    if isinstance(value, StepFunction):
        return value.name
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Enum):
        return _plain(value.value, path)
    if isinstance(value, Mapping):
        named = [(_key(key), item) for key, item in value.items()]
        return {key: _plain(item, (*path, str(key))) for key, item in named}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item, (*path, at)) for at, item in enumerate(value)]
    return value


def _key(key: Any) -> Any:
    return _plain(key) if isinstance(key, StepFunction | Enum) else key
