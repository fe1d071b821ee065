"""The whole name of a named task, ``NAMESPACE/NAME@VERSION``. Workers import this: standard library only."""

import re
from typing import NamedTuple

from mitosis.contracts.errors import InvalidRequest

_PART = r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}"
_VERSION = r"[A-Za-z0-9][A-Za-z0-9._+-]{0,99}"
_WHOLE = re.compile(rf"({_PART})/({_PART})@({_VERSION})")
LATEST = "latest"


class TaskName(NamedTuple):
    """The name of a named task within its user group."""

    namespace: str
    name: str
    version: str


def parse_task_name(text: str, field: str, *, latest: bool = False) -> TaskName:
    """Return the parts of ``NAMESPACE/NAME@VERSION``; with ``latest`` that may be the version.

    Raises:
        InvalidRequest: it is none; names ``field``.
    """
    found = _WHOLE.fullmatch(text)
    if found is None:
        raise InvalidRequest(
            "must be NAMESPACE/NAME@VERSION, as in images/resize@1.4.0", field=field
        )
    if found[3] == LATEST and not latest:
        raise InvalidRequest("must have an exact version; latest is none", field=field)
    return TaskName(*found.groups())


def task_name(namespace: str, name: str, version: str) -> str:
    """Return the whole name of a named task."""
    return f"{namespace}/{name}@{version}"
