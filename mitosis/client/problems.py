"""Turns error answers of the API back into the classes of ``mitosis.contracts.errors``."""

from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import msgspec

from mitosis.contracts.errors import BY_CODE, ApiUnavailable, MitosisError
from mitosis.fates import Fate, fate_of_status

_NOT_FACTS = frozenset({"type", "title", "status", "detail", "code"})


def error_from(status: int, headers: Mapping[str, str], body: bytes) -> MitosisError:
    """Return the error for an answer with this status and body.

    A Mitosis problem document (RFC 9457) gives the class, message and facts; ``Retry-After`` becomes the
    fact ``retry_after_seconds``. Any other answer, such as a proxy's, gives an :class:`ApiUnavailable` if a
    retry can help and a plain :class:`MitosisError` otherwise.
    """
    problem = _problem(headers.get("content-type", ""), body)
    error = _foreign(status) if problem is None else _ours(problem, status)
    wait = _seconds_until(headers.get("retry-after", ""), headers.get("date"))
    if wait is not None:
        error.facts.setdefault("retry_after_seconds", wait)
    return error


def _seconds_until(moment: str, now: str | None) -> float | None:
    """Return ``Retry-After`` in seconds, written as such or as a date (RFC 9110, 10.2.3), or None.

    A date is compared with the server's clock.
    """
    if moment.isascii() and moment.isdigit():
        return float(moment)
    try:
        then = parsedate_to_datetime(moment)
        base = datetime.now(UTC) if now is None else parsedate_to_datetime(now)
        return max(0.0, (then - base).total_seconds())
    except (TypeError, ValueError):
        return None


def _problem(content_type: str, body: bytes) -> dict[str, Any] | None:
    if not content_type.startswith("application/problem+json"):
        return None
    try:
        return msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _ours(problem: dict[str, Any], status: int) -> MitosisError:
    cls = BY_CODE.get(str(problem.get("code")), MitosisError)
    error = cls.__new__(cls)  # subclasses build their message from facts; here the document has it
    MitosisError.__init__(error, str(problem.get("detail") or problem.get("title") or "") or None)
    error.facts = {key: value for key, value in problem.items() if key not in _NOT_FACTS}
    if cls is MitosisError and status != cls.http_status:
        error.facts["status"] = status  # the code of a newer API: the status says what kind it is
    return error


def _foreign(status: int) -> MitosisError:
    message = f"the API address answered with HTTP status {status} and no problem document"
    passing = fate_of_status(status) is Fate.PASSING
    return (ApiUnavailable if passing else MitosisError)(message, status=status)
