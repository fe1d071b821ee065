"""Finds what a worker service executes: options, decorated handlers, entry points and files."""

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from mitosis.contracts.errors import ConfigurationError, InvalidRequest, MitosisError
from mitosis.contracts.named_tasks import TaskName, parse_task_name, task_name
from mitosis.contracts.worker_services import SupportedTask
from mitosis.executors.contract import ExecutorKind
from mitosis.executors.registry import find_executor
from mitosis.handlers import Handler
from mitosis.worker_service.handlers import find_handlers
from mitosis.worker_service.targets import Target, existing_program, parse_task
from mitosis.worker_service.task_files import TaskFile, marks, read_task_files

NEED_PROGRAM = (None, "command")
"""Without a handler, these execute a command."""
ENTRY_POINTS = "mitosis.handlers"
"""Each names a decorated handler, or a module that has some."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Where the named tasks of a service are from."""

    folder: str
    """Where it is started: handlers are imported from there, and commands start there."""
    tasks: Sequence[str] = ()
    """``NAME`` or ``NAME=MODULE:FUNCTION``."""
    command: Sequence[str] = ()
    """argv of the tasks that have no handler."""
    executor: str | None = None
    """The executor of the tasks that have no file that names one."""
    modules: Sequence[str] = ()
    """Their decorated handlers are executed."""
    entry_points: bool = False
    files: Path | None = None
    """Folder of the files of named tasks."""
    configuration: Mapping[str, Any] = field(default_factory=dict)
    """Of the tasks that have no file."""
    priority: int = 100
    max_concurrent: int | None = None


@dataclass(frozen=True, slots=True)
class _How:
    handler: str | None = None
    command: tuple[str, ...] = ()
    executor: str | None = None


class Discovery:
    """The named tasks of a service; its files may change while it runs."""

    def __init__(self, sources: Sources) -> None:
        """Find everything once.

        Raises:
            InvalidRequest, ConfigurationError: says what is missing or wrong.
        """
        if sources.folder not in sys.path:
            sys.path.insert(0, sources.folder)
        self._sources = sources
        self._marks = self._present_marks()
        files = self._read_files()
        decorated = [*_decorated(sources.modules, entry_points=sources.entry_points)]
        given = [_given(text) for text in sources.tasks]
        self._how = self._found(decorated, files, given)
        self._without_file = frozenset(name for name, _ in (*decorated, *given))
        """What other sources than files name: they need none."""
        if not self._how:
            raise InvalidRequest(
                "no named task was found: give --task, --module, --entry-points or --config",
                field="task",
            )
        handlers = [how.handler for how in self._how.values() if how.handler is not None]
        self.functions: Mapping[str, Callable[..., Any]] = find_handlers(handlers, ())
        kinds = sorted({how.executor for how in self._how.values() if how.executor is not None})
        self.executors: Mapping[str, ExecutorKind] = {kind: find_executor(kind) for kind in kinds}
        """Those that the targets name; empty if the slots execute all by handlers and commands."""
        self.targets = self._before = self._targets(files)
        self._files = files

    def changed(self) -> bool:
        """Read the files again if one has been written; return whether the targets differ from then on.

        A named task whose file is gone is supported no more if nothing else names it. How a service executes
        one does not change: a file of a new one counts from the next start.

        Raises:
            ConfigurationError: a file is wrong or cannot be read, or all are gone; the targets stay as they
                were.
        """
        present = self._present_marks()
        if present == self._marks:
            return False
        folder = self._sources.files
        if folder is not None and not folder.is_dir():
            raise ConfigurationError(f"{folder} is gone; what was read from it before still counts")
        try:
            files = self._read_files()
        except ConfigurationError as error:
            if not isinstance(error.__cause__, OSError):  # which may pass: it is read again
                self._marks = present
            raise
        self._marks = present
        targets = self._targets(files)
        if not targets:
            raise ConfigurationError(
                f"no file of a named task is left in {folder}; what was read from it before still counts"
            )
        if targets == self.targets:
            return False
        self._before, self.targets, self._files = self.targets, targets, files
        return True

    def take_back(self) -> list[str]:
        """Go back to the targets before the last change; return the files that had changed them."""
        changed = [new.name for new in self.targets if new not in self._before]
        self.targets = self._before
        return sorted(self._files[name].path for name in changed if name in self._files)

    def _present_marks(self) -> frozenset[tuple[str, int, int]]:
        return frozenset() if self._sources.files is None else marks(self._sources.files)

    def _read_files(self) -> dict[TaskName, TaskFile]:
        return {} if self._sources.files is None else read_task_files(self._sources.files)

    def _found(
        self,
        decorated: Sequence[tuple[TaskName, _How]],
        files: Mapping[TaskName, TaskFile],
        given: Sequence[tuple[TaskName, _How]],
    ) -> dict[TaskName, _How]:
        sources = self._sources
        command = (
            tuple(existing_program(sources.command, sources.folder)) if sources.command else ()
        )
        found: dict[TaskName, _How] = {}
        of_files = [(one.task, self._of_file(one)) for one in files.values()]
        for name, how in [*decorated, *of_files, *given]:
            known = found.get(name, _How())
            if known != _How() and how not in (known, _How()):
                raise InvalidRequest(f"{task_name(*name)} has two handlers", field="task")
            found[name] = how if known == _How() else known
        found = {name: self._complete(name, how, command) for name, how in found.items()}
        return _executed_alike(found)

    def _complete(self, name: TaskName, how: _How, command: tuple[str, ...]) -> _How:
        """Return how a named task is executed, with the options that count for all."""
        how = replace(how, executor=how.executor or self._sources.executor)
        if how.handler is None and not how.command and how.executor in NEED_PROGRAM:
            how = replace(how, command=command)
        if how.executor == "handler" and how.handler is None:
            raise InvalidRequest(
                f"the executor handler of {task_name(*name)} needs a handler, as in --task"
                f" {task_name(*name)}=MODULE:FUNCTION",
                field="task",
            )
        if how.executor in NEED_PROGRAM and how.handler is None and not how.command:
            raise InvalidRequest(
                f"nothing executes {task_name(*name)}: name a handler, as in --task"
                f" {task_name(*name)}=MODULE:FUNCTION, or give --command WORDS or --executor KIND",
                field="task",
            )
        return how

    def _of_file(self, file: TaskFile) -> _How:
        if file.command is not None:
            program = existing_program(file.command, self._sources.folder)
            return _How(command=program, executor=file.executor)
        return _How(file.handler, executor=file.executor)

    def _targets(self, files: Mapping[TaskName, TaskFile]) -> list[Target]:
        targets = [
            Target(self._supported(name, files.get(name)), how.handler, how.command, how.executor)
            for name, how in self._how.items()
            if name in files or name in self._without_file
        ]
        for target in targets:
            if target.executor is not None:
                self._check(target)
        return targets

    def _check(self, target: Target) -> None:
        """Check the configuration of a target with its executor.

        Raises:
            InvalidRequest, ConfigurationError: names the task, the field and what would be right.
        """
        assert target.executor is not None  # noqa: S101 - the caller chose by it
        try:
            self.executors[target.executor].check(target.supported.configuration)
        except MitosisError as error:
            raise ConfigurationError(
                f"{task_name(*target.name)} by the executor {target.executor}: {error.message}"
            ) from None

    def _supported(self, name: TaskName, file: TaskFile | None) -> SupportedTask:
        if file is not None:
            return file.supported()
        sources = self._sources
        fields = name._asdict() | {
            "configuration": dict(sources.configuration),
            "priority": sources.priority,
            "max_concurrent": sources.max_concurrent,
        }
        return SupportedTask.model_validate(fields)


def _executed_alike(found: Mapping[TaskName, _How]) -> dict[TaskName, _How]:
    """Return the same; where one has an executor, handlers and commands have theirs too."""
    if not any(how.executor for how in found.values()):
        return dict(found)
    return {
        name: replace(
            how, executor=how.executor or ("command" if how.handler is None else "handler")
        )
        for name, how in found.items()
    }


def _given(text: str) -> tuple[TaskName, _How]:
    name, handler = parse_task(text)
    return name, _How() if handler is None else _How(handler)


def _decorated(modules: Sequence[str], *, entry_points: bool) -> list[tuple[TaskName, _How]]:
    """Return the decorated handlers of modules and of entry points.

    Raises:
        InvalidRequest: a module cannot be imported, or has none.
    """
    found: dict[str, TaskName] = {}
    for module in modules:
        of_module = _named_handlers(_imported(module, "module"))
        if not of_module:
            raise InvalidRequest(
                f'{module} has no function with @mitosis.handler(named_task="NAMESPACE/NAME@VERSION")',
                field="module",
            )
        found |= of_module
    if entry_points:
        for point in _points():
            found |= _named_handlers(_loaded(point))
    return [(name, _How(handler)) for handler, name in found.items()]


def _points() -> Sequence[Any]:
    return sorted(entry_points(group=ENTRY_POINTS), key=lambda point: point.name)


def _loaded(point: Any) -> object:
    try:
        return point.load()
    except Exception as error:  # noqa: BLE001 - a package of a user may raise anything
        raise InvalidRequest(
            f"cannot load the entry point {point.name} = {point.value}: {type(error).__name__}: {error}",
            field="entry_points",
        ) from None


def _imported(module: str, option: str) -> object:
    try:
        return importlib.import_module(module)
    except Exception as error:  # noqa: BLE001 - a module of a user may raise anything
        raise InvalidRequest(
            f"cannot import {module}: {type(error).__name__}: {error}", field=option
        ) from None


def _named_handlers(found: object) -> dict[str, TaskName]:
    """Return the named handlers of a module, or of one handler, by ``module:function``."""
    values = [found] if isinstance(found, Handler) else list(vars(found).values())
    return {
        f"{one.function.__module__}:{one.function.__qualname__}": parse_task_name(
            one.named_task, "named_task"
        )
        for one in values
        if isinstance(one, Handler) and one.named_task is not None
    }
