"""How `mitosis run` and `mitosis watch` end. A number never counts failures."""

import inspect
from collections.abc import Callable
from enum import IntEnum
from typing import Any

from mitosis.cli.command import Cli
from mitosis.cli.exit import report
from mitosis.contracts.errors import InvalidRequest, Unavailable


class RunExit(IntEnum):
    OK = 0
    """Every task succeeded (or --detach: it was handed over)."""
    TASKS_FAILED = 1
    USAGE = 2
    """The command line, or an input, is not right."""
    COULD_NOT_RUN = 3
    """The setup hook failed on every host that may run it, or a host could not be cleaned."""
    UNREACHABLE = 4
    """The API cannot be reached."""
    CANCELLED = 5
    """Somebody else cancelled the group."""
    DEADLINE = 124
    """--deadline passed. As timeout(1)."""
    INTERRUPTED = 130
    """Ctrl-C: detached or cancelled; the last line says which."""


def with_run_statuses(function: Callable[..., Any]) -> Callable[..., Any]:
    """A command of which wrong usage and an API out of reach have the statuses above."""

    def command(cli: Cli, **values: Any) -> int:
        try:
            return int(function(cli, **values))
        except InvalidRequest as error:
            report(error, as_json=cli.as_json)
            return RunExit.USAGE
        except Unavailable as error:
            report(error, as_json=cli.as_json)
            return RunExit.UNREACHABLE

    command.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
    command.__doc__ = function.__doc__
    return command
