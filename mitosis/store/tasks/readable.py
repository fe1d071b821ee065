"""Documents of tasks that every reader can read: what a report may carry, and what a page shows of a row.

Reports are checked when they arrive, so a row that cannot be read comes from an earlier version or from
another program. A page shows such a row without the members that cannot be read and says so under
``unreadable``: one row never hides the others.
"""

import json
from contextlib import suppress
from typing import Any

import msgspec

from mitosis.contracts.json_depth import MAX_DEPTH, is_deeper, too_deep_text
from mitosis.contracts.json_integers import LONGEST_TEXT
from mitosis.contracts.outcome import FailureKind
from mitosis.contracts.wire import Outcome, TaskReport

DOCUMENT_DEPTH = MAX_DEPTH + 1
"""A detail or a spec with a value of the greatest depth in one of its members."""
UNREADABLE = "unreadable"
"""The member that describes those that are left out."""

_UNDECODABLE = (ValueError, RecursionError)
"""What a decoder raises; msgspec.DecodeError is a ValueError."""


def storable(report: TaskReport) -> TaskReport:
    """Return the report, with another detail if its own could not be read back.

    A success then counts as a failure, because its result is lost; other outcomes stay.
    """
    detail = bytes(report.detail)
    why = _why_unreadable(detail, DOCUMENT_DEPTH)
    if why is None and detail.startswith(b"{"):
        return report
    kept, lost = _split(detail)
    names = ", ".join(lost) or "the detail"
    why = next(iter(lost.values()), None) or why or "is not a JSON object"
    kept["message"] = f"the report of this attempt cannot be stored: {names} {why}"
    succeeded = report.outcome is Outcome.SUCCEEDED
    return msgspec.structs.replace(
        report,
        outcome=Outcome.FAILED if succeeded else report.outcome,
        kind=FailureKind.RESULT_NOT_STORABLE.value if succeeded else report.kind,
        detail=msgspec.Raw(msgspec.json.encode(kept)),
    )


def readable(text: str | None, source: str) -> Any:
    """Return a JSON column that was read as text, without what its readers could not read.

    Args:
        text: the column; None stays None.
        source: the column and the condition of its row in SQL, shown for reading the whole value.
    """
    if text is None:
        return None
    raw = text.encode(errors="surrogatepass")
    if not is_deeper(raw, DOCUMENT_DEPTH):
        with suppress(*_UNDECODABLE):
            document = msgspec.json.decode(raw)
            if isinstance(document, dict):
                return document
    kept, lost = _split(raw)
    why = _why_unreadable(raw, DOCUMENT_DEPTH) or "is not a JSON object"
    return {**kept, UNREADABLE: _described(lost or {"": why}, source, len(raw))}


def _described(lost: dict[str, str], source: str, size: int) -> dict[str, object]:
    return {
        "members": sorted(filter(None, lost)),
        "why": "; ".join(f"{name} {why}".strip() for name, why in sorted(lost.items())),
        "bytes": size,
        "read_it_with": f"SELECT {source}",
    }


def _split(raw: bytes) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the members of a document that can be read, and the reasons for the others."""
    try:  # the parser of Python takes what others refuse, such as halves of characters
        document = json.loads(raw)
    except _UNDECODABLE:
        return {}, {}
    kept, lost = {}, {}
    for key, member in document.items() if isinstance(document, dict) else ():
        name = key.encode(errors="replace").decode()
        text = json.dumps(member).encode()
        if (why := _why_unreadable(text, MAX_DEPTH)) is None:
            kept[name] = msgspec.json.decode(text)
        else:
            lost[name] = why
    return kept, lost


def _why_unreadable(raw: bytes, depth: int) -> str | None:
    """Return why a reader could not read this JSON text; None if all can."""
    if is_deeper(raw, depth):
        return too_deep_text(depth)
    try:
        msgspec.json.decode(raw)
    except _UNDECODABLE as error:
        if "Integer" in str(error):
            return f"has {LONGEST_TEXT}"
        return f"is not readable JSON ({error})"
    return None
