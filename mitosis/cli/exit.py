"""How a command ends: every exit status with its name, and errors as people or programs read them.

The one place that maps errors to exit statuses. Numbers from 64 on are those of sysexits.h.
"""

import json
import sys
from collections.abc import Mapping
from enum import IntEnum

import typer

from mitosis.cli.streams import StandardOutputLost
from mitosis.contracts import errors
from mitosis.contracts.lifecycle import TaskGroupResult


class ExitStatus(IntEnum):
    OK = 0
    """Done; for `wait`: every task succeeded and every host was cleaned."""
    PROBLEM_FOUND = 1
    """`mitosis doctor` found something that fails."""
    USAGE = 2
    """The command line was not understood."""
    TASKS_FAILED = 10
    """`wait`: at least one task failed or was cancelled."""
    CANCELLED = 11
    """`wait`: the group was cancelled."""
    SETUP_FAILED = 12
    """`wait`: tasks never ran because the setup hook failed."""
    TEARDOWN_DEGRADED = 13
    """`wait`: all tasks succeeded, but a host could not be cleaned."""
    INVALID = 65
    """A value is not valid or too large (EX_DATAERR)."""
    NOT_FOUND = 66
    """There is no such thing, or a file cannot be read (EX_NOINPUT)."""
    UNAVAILABLE = 69
    """The API or something behind it cannot be reached (EX_UNAVAILABLE)."""
    INTERNAL = 70
    """Something went wrong in Mitosis (EX_SOFTWARE)."""
    CONFLICT = 73
    """Not possible in the present state: the name is taken, the group is closed (EX_CANTCREAT)."""
    OUTPUT_LOST = 74
    """Standard output cannot be written, as on a full disk (EX_IOERR)."""
    TRY_LATER = 75
    """Too many requests; trying again can help (EX_TEMPFAIL)."""
    NOT_ALLOWED = 77
    """No valid token, or the token does not allow it (EX_NOPERM)."""
    CONFIGURATION = 78
    """Settings, data folder, ports or programs of this machine (EX_CONFIG)."""
    TIMED_OUT = 124
    """`wait --timeout`: the time was over first. As timeout(1)."""
    INTERRUPTED = 130
    """Ctrl-C. 128 + SIGINT."""


OF_ERROR: Mapping[type[errors.MitosisError], ExitStatus] = {
    errors.InvalidRequest: ExitStatus.INVALID,
    errors.TooLarge: ExitStatus.INVALID,
    errors.Unauthenticated: ExitStatus.NOT_ALLOWED,
    errors.PermissionDenied: ExitStatus.NOT_ALLOWED,
    errors.NotFound: ExitStatus.NOT_FOUND,
    errors.Conflict: ExitStatus.CONFLICT,
    errors.RateLimited: ExitStatus.TRY_LATER,
    errors.Unavailable: ExitStatus.UNAVAILABLE,
    errors.ConfigurationError: ExitStatus.CONFIGURATION,
    StandardOutputLost: ExitStatus.OUTPUT_LOST,
    errors.MethodNotAllowed: ExitStatus.CONFIGURATION,  # another version, or another server
    errors.UnsupportedMediaType: ExitStatus.CONFIGURATION,
    errors.MitosisError: ExitStatus.INTERNAL,
}
"""Exit status of an error class; subclasses inherit it."""

OF_RESULT: Mapping[TaskGroupResult, ExitStatus] = {
    TaskGroupResult.SUCCESS: ExitStatus.OK,
    TaskGroupResult.TASKS_FAILED: ExitStatus.TASKS_FAILED,
    TaskGroupResult.CANCELLED: ExitStatus.CANCELLED,
    TaskGroupResult.SETUP_FAILED: ExitStatus.SETUP_FAILED,
    TaskGroupResult.TEARDOWN_DEGRADED: ExitStatus.TEARDOWN_DEGRADED,
}
"""Exit status of `mitosis group wait` by the result of the settled group."""


FILE_OPTIONS = frozenset({"--spec", "--setup-file", "--teardown-file"})
"""Options whose value is a file with many fields: an error names the field too."""


def status_of(error: errors.MitosisError) -> ExitStatus:
    """The status of the nearest class of the error that has one."""
    return next(OF_ERROR[cls] for cls in type(error).__mro__ if cls in OF_ERROR)


def report(error: errors.MitosisError, *, as_json: bool, status: int | None = None) -> int:
    """Write the error to standard error, and give the exit status that goes with it.

    ``status``: that of a command which has numbers of its own.
    """
    status = status_of(error) if status is None else status
    if as_json:
        _write(json.dumps(problem(error, status), default=str))
    else:
        for line in explain(error):
            _write(line)
    return status


def _in_our_words(cause: BaseException) -> str | None:
    from pydantic import ValidationError

    from mitosis.contracts.checked_model import describe_validation_error

    if not isinstance(cause, ValidationError):
        return None
    return describe_validation_error(cause.errors(include_url=False)[0], "python")


def report_usage(error: typer.TyperException, *, as_json: bool) -> ExitStatus:
    """As :func:`report`, for a command line that typer could not make sense of."""
    context = getattr(error, "ctx", None)
    if error.__cause__ is not None:  # typer lets pydantic read the values
        error.message = _in_our_words(error.__cause__) or error.message
    message = error.format_message()
    if as_json:
        _write(json.dumps({"code": "usage", "detail": message, "exit_status": ExitStatus.USAGE}))
    else:
        _write(f"error: {message}")
        if context is not None:
            _write(f"  see: {context.command_path} --help")
    return ExitStatus.USAGE


def problem(error: errors.MitosisError, status: int) -> dict[str, object]:
    """The error as the API's problem documents show it (RFC 9457), with the exit status."""
    return {
        "type": f"urn:mitosis:error:{error.code}",
        "title": (type(error).__doc__ or type(error).__name__).strip().splitlines()[0],
        "code": error.code,
        "detail": error.message,
        **error.facts,
        "exit_status": int(status),
    }


def explain(error: errors.MitosisError) -> list[str]:
    """The error in lines for people: what is wrong and where, then what would be right."""
    option, field = error.facts.get("option"), error.facts.get("field")
    where = str(option or field or "")
    if option in FILE_OPTIONS and field:
        where = f"{option} ({field})"
    lines = [f"error: {where}: {error.message}" if where else f"error: {error.message}"]
    if hint := error.facts.get("hint"):
        lines.append(f"  {hint}")
    return lines


def _write(line: str) -> None:
    sys.stderr.write(f"{line}\n")
