"""The exit statuses of `mitosis run` and `mitosis watch`. A number never counts failures.

Their last line, their help and the reference page are made from this list. Numbers from 64 on have the
meaning that they have for every command (``mitosis/cli/exit.py``).
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import IntEnum

from mitosis.cli.exit import ExitStatus, report, status_of
from mitosis.contracts.errors import InvalidRequest, MitosisError, TooLarge, Unavailable


class RunExit(IntEnum):
    OK = 0
    TASKS_FAILED = 1
    USAGE = 2
    COULD_NOT_RUN = 3
    UNREACHABLE = 4
    CANCELLED = 5
    NOT_FOUND = ExitStatus.NOT_FOUND
    INTERNAL = ExitStatus.INTERNAL
    CONFLICT = ExitStatus.CONFLICT
    OUTPUT_LOST = ExitStatus.OUTPUT_LOST
    TRY_LATER = ExitStatus.TRY_LATER
    NOT_ALLOWED = ExitStatus.NOT_ALLOWED
    CONFIGURATION = ExitStatus.CONFIGURATION
    DEADLINE = 124
    """As timeout(1)."""
    INTERRUPTED = 130
    """128 + SIGINT."""


MEANING: Mapping[RunExit, str] = {
    RunExit.OK: "all tasks succeeded, or --detach",
    RunExit.TASKS_FAILED: "some tasks failed",
    RunExit.USAGE: "the command line or an input is invalid",
    RunExit.COULD_NOT_RUN: "setup failed on every host, a host could not be cleaned, or --max-fail",
    RunExit.UNREACHABLE: "the API cannot be reached",
    RunExit.CANCELLED: "the task group was cancelled from elsewhere",
    RunExit.NOT_FOUND: "no such task group or token file",
    RunExit.INTERNAL: "an internal error of Mitosis",
    RunExit.CONFLICT: "the name is taken",
    RunExit.OUTPUT_LOST: "output cannot be written, or a part of it is missing",
    RunExit.TRY_LATER: "too many requests",
    RunExit.NOT_ALLOWED: "no valid token, or a token that does not allow this",
    RunExit.CONFIGURATION: "settings or programs of this host",
    RunExit.DEADLINE: "--deadline passed",
    RunExit.INTERRUPTED: "Ctrl-C, SIGTERM or SIGHUP, or the reader of the output is gone",
}


def status_of_error(error: MitosisError) -> RunExit:
    """Return the status of an error: invalid input is wrong usage, any outage counts as the API's."""
    if isinstance(error, InvalidRequest | TooLarge):
        return RunExit.USAGE
    if isinstance(error, Unavailable):
        return RunExit.UNREACHABLE
    return RunExit(status_of(error))


@dataclass(frozen=True, slots=True)
class RunExits:
    """The exit statuses above as rules of a command, which never ends with those in ``never``."""

    never: Collection[RunExit] = ()

    @property
    def help_text(self) -> str:
        """``Exit status: 0 all tasks succeeded, …; 1 …``, for the help."""
        listed = [
            f"{status:d} {text}" for status, text in MEANING.items() if status not in self.never
        ]
        return f"Exit status: {'; '.join(listed)}."

    def report(self, error: MitosisError | BrokenPipeError, *, as_json: bool) -> int:
        """Print the error and return the exit status."""
        if isinstance(error, BrokenPipeError):
            return RunExit.INTERRUPTED
        return report(error, as_json=as_json, status=status_of_error(error))
