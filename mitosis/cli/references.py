"""Names of task groups as typed: ``NAME``, ``USERGROUP/NAME`` or an id."""

import re

from mitosis.contracts.errors import InvalidRequest

REFERENCE = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?", re.ASCII)


def check_reference(text: str) -> str:
    """A task group as people name it; anything else must not become part of a URL.

    Raises:
        InvalidRequest: says what would be right.
    """
    if not REFERENCE.fullmatch(text):
        raise InvalidRequest(
            f"{text!r} is not the id or name of a task group; write NAME, USERGROUP/NAME or an id",
            option="GROUP",
        )
    return text
