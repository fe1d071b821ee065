"""How `mitosis run` and `mitosis watch` end. A number never counts failures.

The one list of their exit statuses: what they say at their end, their help and the reference page are
made of it. Numbers from 64 on mean what they mean for every command (``mitosis/cli/exit.py``).
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
    RunExit.USAGE: "the command line or an input is not right",
    RunExit.COULD_NOT_RUN: "setup failed on every host, a host could not be cleaned, or --max-fail",
    RunExit.UNREACHABLE: "the API cannot be reached",
    RunExit.CANCELLED: "somebody else cancelled the group",
    RunExit.NOT_FOUND: "there is no such group or token file",
    RunExit.INTERNAL: "something went wrong in Mitosis",
    RunExit.CONFLICT: "the name is taken",
    RunExit.OUTPUT_LOST: "the output cannot be written",
    RunExit.TRY_LATER: "too many requests",
    RunExit.NOT_ALLOWED: "no valid token, or it does not allow this",
    RunExit.CONFIGURATION: "settings or programs of this machine",
    RunExit.DEADLINE: "--deadline passed",
    RunExit.INTERRUPTED: "Ctrl-C, SIGTERM or SIGHUP, or nobody reads the output",
}


def status_of_error(error: MitosisError) -> RunExit:
    """Of a run, wrong input is wrong usage, and whatever is away is the API to its user."""
    if isinstance(error, InvalidRequest | TooLarge):
        return RunExit.USAGE
    if isinstance(error, Unavailable):
        return RunExit.UNREACHABLE
    return RunExit(status_of(error))


@dataclass(frozen=True, slots=True)
class RunExits:
    """The exit statuses above as the rules of a command; it never ends with those in ``never``."""

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
