"""The conditions of steps, as in ``results.merge.rows > 0 and params.publish``. Standard library only.

A condition compares references with values; there are no calls and no arithmetic.
"""

import json
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

from mitosis.jobs.kinds import kind_of
from mitosis.jobs.references import Reference, parse_reference, quoted_text

MAX_CONDITION = 1_000
"""Characters."""
MAX_DEPTH = 20
"""Parentheses within parentheses, and ``not`` before ``not``."""
_TEXT = r'"(?:[^"\\]|\\.)*"'
_TOKEN = re.compile(
    rf"""\s*(?:(?P<sign>==|!=|<=|>=|<|>|\(|\)|,|\[|\])
    |(?P<number>-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?(?![\w.]))
    |(?P<text>{_TEXT}|'[^'\\]*')
    |(?P<word>[A-Za-z_][A-Za-z0-9_-]*(?:\.[A-Za-z_][A-Za-z0-9_-]*|\[\d+\]|\[{_TEXT}\])*))""",
    re.VERBOSE,
)
_CONSTANTS = {"true": True, "false": False, "null": None}
_HINT = "write it as in: results.check.rows > 0 and params.publish"
_COMPARE: Mapping[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "in": lambda one, many: one in many,
    "not in": lambda one, many: one not in many,
}


@dataclass(frozen=True, slots=True)
class Constant:
    value: Any


@dataclass(frozen=True, slots=True)
class Comparison:
    left: "Operand"
    sign: str
    right: "Operand"


@dataclass(frozen=True, slots=True)
class Not:
    part: "Condition"


@dataclass(frozen=True, slots=True)
class Joined:
    """Parts joined by ``and`` or by ``or``."""

    word: str
    parts: "tuple[Condition, ...]"


Operand: TypeAlias = Reference | Constant
Condition: TypeAlias = Operand | Comparison | Not | Joined


@lru_cache(maxsize=1024)
def parse_condition(text: str) -> Condition:
    """Return the condition that a text is.

    Raises:
        ValueError: it is none; says where it ends to be one.
    """
    if len(text) > MAX_CONDITION:
        raise ValueError(f"has {len(text)} characters; a condition may have {MAX_CONDITION}")
    return _Parser(text).whole()


def references_of(condition: Condition) -> Iterator[Reference]:
    """Yield the references in a condition."""
    if isinstance(condition, Reference):
        yield condition
    elif isinstance(condition, Comparison):
        yield from references_of(condition.left)
        yield from references_of(condition.right)
    elif isinstance(condition, Not):
        yield from references_of(condition.part)
    elif isinstance(condition, Joined):
        for part in condition.parts:
            yield from references_of(part)


def holds(condition: Condition, value_of: Callable[[Reference], Any]) -> bool:
    """Return whether a condition holds for these values.

    Raises:
        ValueError: values cannot be compared, or are neither true nor false; names them.
    """
    if isinstance(condition, Joined):
        results = (holds(part, value_of) for part in condition.parts)
        return all(results) if condition.word == "and" else any(results)
    if isinstance(condition, Not):
        return not holds(condition.part, value_of)
    if isinstance(condition, Comparison):
        return _compare(condition, value_of)
    value = _value(condition, value_of)
    if not isinstance(value, bool):
        what = f"is {kind_of(value)}, neither true nor false"
        raise ValueError(f"{_named(condition)} {what}; compare it")  # noqa: TRY004 - of a definition
    return value


def _value(operand: Operand, value_of: Callable[[Reference], Any]) -> Any:
    return operand.value if isinstance(operand, Constant) else value_of(operand)


def _named(operand: Operand) -> str:
    return json.dumps(operand.value) if isinstance(operand, Constant) else str(operand)


def _compare(condition: Comparison, value_of: Callable[[Reference], Any]) -> bool:
    left, right = _value(condition.left, value_of), _value(condition.right, value_of)
    if condition.sign in {"==", "!="} and isinstance(left, bool) != isinstance(right, bool):
        return condition.sign == "!="  # in JSON, true is not 1
    try:
        return bool(_COMPARE[condition.sign](left, right))
    except TypeError:
        raise ValueError(
            f"{_named(condition.left)} {condition.sign} {_named(condition.right)} compares"
            f" {kind_of(left)} with {kind_of(right)}, which have no order"
        ) from None


class _Parser:
    """Recursive descent over the tokens; depth is bounded."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(self._split())
        self._at = 0

    def whole(self) -> Condition:
        found = self._either(0)
        if self._at < len(self._tokens):
            raise self._wrong()
        return found

    def _split(self) -> Iterator[tuple[str, str, int]]:
        at, end = 0, len(self._text.rstrip())
        while at < end:
            found = _TOKEN.match(self._text, at)
            if found is None:
                raise ValueError(
                    f"is no condition from {self._text[at:].strip()!r:.60} on; {_HINT}"
                )
            kind = found.lastgroup or ""
            yield kind, found[kind], found.start(kind)
            at = found.end()

    def _wrong(self) -> ValueError:
        if self._at >= len(self._tokens):
            return ValueError(f"is no condition: it ends too early; {_HINT}")
        at = self._tokens[self._at][2]
        return ValueError(f"is no condition from {self._text[at:]!r:.60} on; {_HINT}")

    def _next_is(self, *words: str) -> bool:
        following = [token[1] for token in self._tokens[self._at : self._at + len(words)]]
        if following != list(words):
            return False
        self._at += len(words)
        return True

    def _either(self, depth: int) -> Condition:
        return self._joined("or", self._all, depth)

    def _all(self, depth: int) -> Condition:
        return self._joined("and", self._single, depth)

    def _joined(self, word: str, part: Callable[[int], Condition], depth: int) -> Condition:
        parts = [part(depth)]
        while self._next_is(word):
            parts.append(part(depth))
        return parts[0] if len(parts) == 1 else Joined(word, tuple(parts))

    def _single(self, depth: int) -> Condition:
        if depth > MAX_DEPTH:
            raise ValueError(f"is nested deeper than {MAX_DEPTH} levels")
        if self._next_is("not"):
            return Not(self._single(depth + 1))
        if self._next_is("("):
            found = self._either(depth + 1)
            if not self._next_is(")"):
                raise self._wrong()
            return found
        left = self._operand()
        sign = self._sign()
        return left if sign is None else Comparison(left, sign, self._operand())

    def _sign(self) -> str | None:
        if self._next_is("not", "in"):
            return "not in"
        return next((sign for sign in _COMPARE if self._next_is(sign)), None)

    def _operand(self) -> Operand:
        if self._next_is("["):
            return Constant(self._list())
        if self._at >= len(self._tokens):
            raise self._wrong()
        kind, text, _ = self._tokens[self._at]
        if kind == "sign" or text in {"and", "or", "not", "in"}:
            raise self._wrong()
        self._at += 1
        if kind == "number":
            return Constant(_number(text))
        if kind == "text":
            return Constant(quoted_text(text) if text[0] == '"' else text[1:-1])
        return Constant(_CONSTANTS[text]) if text in _CONSTANTS else parse_reference(text)

    def _list(self) -> tuple[Any, ...]:
        items: list[Any] = []
        while not self._next_is("]"):
            if items and not self._next_is(","):
                raise self._wrong()
            item = None if self._next_is("[") else self._operand()
            if not isinstance(item, Constant):
                raise ValueError(f"a list in a condition holds plain values; {_HINT}")  # noqa: TRY004 - text
            items.append(item.value)
        return tuple(items)


def _number(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise ValueError(f"{text:.60} is no number as in JSON, such as 7 or 0.5") from None
