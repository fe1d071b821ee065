"""References to task groups on the command line: ``NAME``, ``USERGROUP/NAME`` or an id."""

import re

from mitosis.contracts.errors import InvalidRequest

REFERENCE = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?", re.ASCII)


def check_reference(text: str) -> str:
    """Return the reference if it is well-formed; anything else must not become part of a URL.

    Raises:
        InvalidRequest: it is neither a name nor an id.
    """
    if not REFERENCE.fullmatch(text):
        raise InvalidRequest(
            f"{text!r} is not the id or name of a task group; write NAME, USERGROUP/NAME or an id",
            option="GROUP",
        )
    return text
