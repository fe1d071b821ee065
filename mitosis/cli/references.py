"""References to task groups and jobs on the command line: ``NAME``, ``USERGROUP/NAME`` or an id."""

import re

from mitosis.contracts.errors import InvalidRequest

REFERENCE = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?", re.ASCII)


def check_reference(text: str) -> str:
    """Return the reference to a task group if it is well-formed.

    Raises:
        InvalidRequest: it is neither a name nor an id.
    """
    return _checked(text, "a task group", "GROUP")


def check_job(text: str) -> str:
    """Return the reference to a job if it is well-formed.

    Raises:
        InvalidRequest: it is neither a name nor an id.
    """
    return _checked(text, "a job", "JOB")


def check_schedule(text: str) -> str:
    """Return the reference to a schedule if it is well-formed.

    Raises:
        InvalidRequest: it is neither a name nor an id.
    """
    return _checked(text, "a schedule", "SCHEDULE")


def _checked(text: str, what: str, option: str) -> str:
    """Refuse anything that must not become part of a URL."""
    if not REFERENCE.fullmatch(text):
        raise InvalidRequest(
            f"{text!r} is not the id or name of {what}; write NAME, USERGROUP/NAME or an id",
            option=option,
        )
    return text
