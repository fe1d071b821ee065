"""What a worker service executes for each of its named tasks: a handler, a command or an executor."""

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass

from mitosis.contracts.errors import InvalidRequest
from mitosis.contracts.named_tasks import TaskName, parse_task_name, task_name
from mitosis.contracts.worker_services import SupportedTask


@dataclass(frozen=True, slots=True)
class Target:
    """A named task with its association, and how it is executed: by a handler, a command or an executor."""

    supported: SupportedTask
    handler: str | None = None
    """``module:function``, called with the arguments of the task."""
    command: tuple[str, ...] = ()
    """argv; reads the attempt as JSON from standard input and writes its result to standard output."""
    executor: str | None = None
    """The kind of the executor that carries it out; None: the slots do, by its handler or its command."""

    @property
    def name(self) -> TaskName:
        return TaskName(self.supported.namespace, self.supported.name, self.supported.version)

    @property
    def handler_module(self) -> str | None:
        return None if self.handler is None else self.handler.partition(":")[0]


def by_name(targets: Sequence[Target]) -> dict[TaskName, Target]:
    """Return the targets by the name of their task.

    Raises:
        InvalidRequest: two have the same; there is none.
    """
    if not targets:
        raise InvalidRequest("give at least one named task", field="task")
    found: dict[TaskName, Target] = {}
    for target in targets:
        if target.name in found:
            raise InvalidRequest(f"{task_name(*target.name)} is given twice", field="task")
        found[target.name] = target
    return found


def parse_task(text: str) -> tuple[TaskName, str | None]:
    """Return the parts of ``NAMESPACE/NAME@VERSION`` or ``NAMESPACE/NAME@VERSION=MODULE:FUNCTION``.

    Raises:
        InvalidRequest: it is neither.
    """
    name, equals, handler = text.partition("=")
    parsed = parse_task_name(name, "task")
    if not equals:
        return parsed, None
    module, colon, function = handler.partition(":")
    words = [*module.split("."), *function.split(".")]
    if not colon or not all(word.isidentifier() for word in words):
        raise InvalidRequest(
            f"must name a handler as MODULE:FUNCTION after the =, not {handler!r:.100}",
            field="task",
        )
    return parsed, handler


def existing_program(argv: Sequence[str], folder: str) -> tuple[str, ...]:
    """Return the argv of a command that is started in ``folder``.

    Raises:
        InvalidRequest: there is no such program, or it is not executable.
    """
    if not argv or not argv[0]:
        raise InvalidRequest("must name a program, as in './resize.sh --fast'", field="command")
    program = os.path.join(folder, argv[0]) if os.sep in argv[0] else argv[0]  # noqa: PTH118 - a name is no path
    found = shutil.which(program)
    if found is None:
        raise InvalidRequest(
            f"there is no executable program {argv[0]!r:.200}, started in {folder}", field="command"
        )
    return (found, *argv[1:])
