"""The verbs that a task group has received: checked, kept in order, bounded. Pure.

Signals have no answer, so only the effect of several counts: the last of ``close`` and ``reopen`` in a row,
and one of equal verbs in a row. Updates are answered one by one; Temporal bounds how many are under way.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, TypeAlias, TypeVar

from pydantic import ValidationError

from mitosis.contracts.checked_model import describe_validation_error, path_of_error
from mitosis.contracts.checking import shown
from mitosis.contracts.control import Cancel, Close, Complete, GroupView, Reopen, VerbModel
from mitosis.contracts.errors import InvalidRequest

Verb: TypeAlias = Close | Reopen | Cancel | Complete
V = TypeVar("V", bound=VerbModel)
Answer: TypeAlias = asyncio.Future[GroupView]

MOST_SIGNALS = 50
"""Verbs of signals that wait for their turn; more are refused."""
_OF_US = frozenset({"kind", "valid_until"})
"""Fields that the API sets; they are not offered to users."""


@dataclass(frozen=True, slots=True)
class PendingVerb:
    """A verb that waits for its turn, and the answer if it came as an update."""

    verb: Verb
    answer: Answer | None = None


class VerbQueue:
    """The verbs of one group, first come first served."""

    def __init__(self) -> None:
        self._pending: deque[PendingVerb] = deque()
        self._signals = 0

    def __len__(self) -> int:
        return len(self._pending)

    def put(self, verb: Verb, answer: Answer | None = None) -> None:
        """Append a verb that must not be refused; its result becomes the result of ``answer``."""
        self._signals += answer is None
        self._pending.append(PendingVerb(verb, answer))

    def put_signal(self, verb: Verb) -> bool:
        """Append the verb of a signal, or merge it into the last one; return False if there are too many."""
        last = self._pending[-1] if self._pending else None
        if last is not None and last.answer is None and _replaces(verb, last.verb):
            self._pending[-1] = PendingVerb(verb)
            return True
        if self._signals >= MOST_SIGNALS:
            return False
        self.put(verb)
        return True

    def take(self) -> PendingVerb:
        """Remove and return the first verb."""
        first = self._pending.popleft()
        self._signals -= first.answer is None
        return first


def _replaces(new: Verb, last: Verb) -> bool:
    """Return whether executing ``new`` alone has the effect of executing ``last`` and then ``new``."""
    toggles = isinstance(new, Close | Reopen) and isinstance(last, Close | Reopen)
    return toggles or new == last


def read_verb(kind: type[V], given: Any, *, strict: bool = True) -> V:
    """Return the verb that a message carries: no argument, ``null`` or an object.

    ``strict``: refuse unknown fields; runs that began before ignore them, and must replay.

    Raises:
        InvalidRequest: names the field and what would be right.
    """
    if given is None:
        return kind()
    if not isinstance(given, dict):
        raise InvalidRequest(f"the argument must be an object or null, not {shown(given)}")
    if strict:
        _refuse_unknown(kind, given)
    try:
        return kind.model_validate(given)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        message = describe_validation_error(first, "json")
        value = shown(first["input"])
        message += "" if value in message else f", not {value}"
        raise InvalidRequest(message, field=path_of_error(first["loc"])) from None


def _refuse_unknown(kind: type[VerbModel], given: dict[str, Any]) -> None:
    for name in given:
        if name not in kind.model_fields:
            known = [field for field in kind.model_fields if field not in _OF_US]
            raise InvalidRequest(
                f"unknown field{_meant(name, known)}; a {kind.__name__.lower()} takes {', '.join(known)}",
                field=name,
            )


def _meant(name: str, known: Sequence[str]) -> str:
    close = get_close_matches(name, known, n=1)
    return f", did you mean {close[0]}?" if close else ""
