"""How a command ends: the exit statuses, and errors as text or JSON.

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
    """Success; for `wait`: every task succeeded and every host was cleaned."""
    PROBLEM_FOUND = 1
    """`mitosis doctor` found something that fails."""
    USAGE = 2
    """The command line was not understood."""
    TASKS_FAILED = 10
    """`wait`: at least one task failed or was cancelled; `job watch`: the run has failed."""
    CANCELLED = 11
    """`wait`, `job watch`: the group or the run was cancelled."""
    SETUP_FAILED = 12
    """`wait`: no task ran because the setup hook failed."""
    TEARDOWN_DEGRADED = 13
    """`wait`: all tasks succeeded, but a host could not be cleaned."""
    INVALID = 65
    """A value is invalid or too large (EX_DATAERR)."""
    NOT_FOUND = 66
    """What was named does not exist, or a file cannot be read (EX_NOINPUT)."""
    UNAVAILABLE = 69
    """The API or something behind it cannot be reached (EX_UNAVAILABLE)."""
    INTERNAL = 70
    """An internal error of Mitosis (EX_SOFTWARE)."""
    CONFLICT = 73
    """Not possible in the present state: the name is taken, the task group is closed (EX_CANTCREAT)."""
    OUTPUT_LOST = 74
    """Standard output cannot be written, as on a full disk (EX_IOERR)."""
    TRY_LATER = 75
    """Too many requests; a retry can succeed (EX_TEMPFAIL)."""
    NOT_ALLOWED = 77
    """No valid token, or the token does not allow it (EX_NOPERM)."""
    CONFIGURATION = 78
    """Settings, data folder, ports or programs of this host (EX_CONFIG)."""
    TIMED_OUT = 124
    """`wait --timeout`: the time ran out first. As timeout(1)."""
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
    errors.MethodNotAllowed: ExitStatus.CONFIGURATION,  # another version, or another server answers
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


FILE_OPTIONS = frozenset({"--spec", "SPEC", "--setup-file", "--teardown-file"})
"""Options and arguments whose value is a file with many fields: an error names the field too."""


def status_of(error: errors.MitosisError) -> ExitStatus:
    """Return the status of the nearest class of the error that has one."""
    return next(OF_ERROR[cls] for cls in type(error).__mro__ if cls in OF_ERROR)


def report(error: errors.MitosisError, *, as_json: bool, status: int | None = None) -> int:
    """Write the error to standard error and return its exit status.

    ``status`` replaces it, for commands with exit statuses of their own.
    """
    status = status_of(error) if status is None else status
    if as_json:
        _write(json.dumps(problem_document(error, status), default=str))
    else:
        for line in text_lines(error):
            _write(line)
    return status


def _in_our_words(cause: BaseException) -> str | None:
    from pydantic import ValidationError

    from mitosis.contracts.checked_model import describe_validation_error

    if not isinstance(cause, ValidationError):
        return None
    return describe_validation_error(cause.errors(include_url=False)[0], "python")


def report_usage(error: typer.TyperException, *, as_json: bool) -> ExitStatus:
    """Report a command line that typer refused, as :func:`report` does."""
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


def problem_document(error: errors.MitosisError, status: int) -> dict[str, object]:
    """Return the error as a problem document of the API (RFC 9457), with the exit status."""
    return {
        "type": f"urn:mitosis:error:{error.code}",
        "title": (type(error).__doc__ or type(error).__name__).strip().splitlines()[0],
        "code": error.code,
        "detail": error.message,
        **error.facts,
        "exit_status": int(status),
    }


def text_lines(error: errors.MitosisError) -> list[str]:
    """Return the error as lines of text: what is wrong and where, then what would be right."""
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
