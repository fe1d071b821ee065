"""References such as ``params.date`` and texts with ``{{ … }}`` around them. Standard library only.

A text is parsed into its parts and never evaluated: there are no filters, calls or operators, so a
definition cannot run code where it is rendered.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, wraps
from typing import TypeAlias, TypeVar

ROOTS = ("params", "results", "task", "item", "run", "job")
MAX_REFERENCE = 500
"""Characters of one reference."""

_NAME = r"[A-Za-z_][A-Za-z0-9_-]*"
_STEP = re.compile(rf"\.({_NAME})|\[(0|[1-9][0-9]{{0,8}})\]|\[(\"(?:[^\"\\]|\\.)*\")\]")
_ROOT = re.compile(_NAME)
_TEXT = re.compile(r"\"(?:[^\"\\]|\\.)*\"", re.DOTALL)
_BRACES = re.compile(rf"\{{\{{((?:{_TEXT.pattern}|[^{{}}\"])*)\}}\}}", re.DOTALL)
FORMS = "{{ params.NAME }}, {{ results.STEP }}, {{ task.index }} or {{ item }}"


@dataclass(frozen=True, slots=True)
class Reference:
    """A value by its place: ``results.prepare.files[0]``."""

    root: str
    path: tuple[str | int, ...] = ()

    def __str__(self) -> str:
        return self.root + "".join(_written(step) for step in self.path)

    @property
    def name(self) -> str | None:
        """The name after the root, as of the parameter or the step."""
        return self.path[0] if self.path and isinstance(self.path[0], str) else None


Part: TypeAlias = str | Reference
T = TypeVar("T")


def _cached(function: Callable[[str], T]) -> Callable[[str], T]:
    """Keep the answers for short texts only: thousands of long ones would stay in memory."""
    kept = lru_cache(maxsize=4096)(function)

    @wraps(function)
    def answer(text: str) -> T:
        return kept(text) if len(text) <= MAX_REFERENCE else function(text)

    return answer


@_cached
def parse_reference(text: str) -> Reference:
    """Return the reference that a text such as ``params.date`` or ``{{ params.date }}`` is.

    Raises:
        ValueError: it is none; says what would be right.
    """
    bare = text.strip()
    if bare.startswith("{{") and bare.endswith("}}"):
        bare = bare[2:-2].strip()
    found = _ROOT.match(bare)
    path, end = _path(bare, found.end()) if found else ((), 0)
    if found is None or end != len(bare) or len(bare) > MAX_REFERENCE:
        raise ValueError(f"{_short(text)} is no reference; write {FORMS}")
    if found[0] not in ROOTS:
        raise ValueError(f"{_short(text)} begins with {found[0]}; write {FORMS}")
    return Reference(found[0], path)


@_cached
def parts_of(text: str) -> tuple[Part, ...]:
    """Return the plain texts and the references of a text, in order; ``{{ "…" }}`` is plain text.

    Raises:
        ValueError: braces are not closed, or hold no reference; says what would be right.
    """
    parts: list[Part] = []
    end = 0
    while (start := text.find("{{", end)) >= 0:
        start += text.startswith("{", start + 2)  # a brace of the text before those of a reference
        found = _BRACES.match(text, start)
        if found is None:  # at once, so that the work grows with the text only
            raise ValueError(_unclosed(text))
        _add_plain(parts, text[end:start])
        inner = found[1].strip()
        if _TEXT.fullmatch(inner):
            _add_plain(parts, quoted_text(inner))
        else:
            parts.append(parse_reference(inner))
        end = found.end()
    _add_plain(parts, text[end:])
    return tuple(parts)


def references_in(text: str) -> tuple[Reference, ...]:
    """Return the references of a text; see :func:`parts_of`."""
    return tuple(part for part in parts_of(text) if isinstance(part, Reference))


def quoted_text(text: str) -> str:
    """Return what a text in double quotes stands for.

    Raises:
        ValueError: JSON does not know one of its escapes; names the text.
    """
    try:
        return str(json.loads(text, strict=False))
    except ValueError:
        raise ValueError(
            f"{_short(text)} is no text as in JSON; write two backslashes for one"
        ) from None


def _path(text: str, start: int) -> tuple[tuple[str | int, ...], int]:
    """Return the steps of a path, and where it ends."""
    path: list[str | int] = []
    while (found := _STEP.match(text, start)) is not None:
        name, index, key = found.groups()
        path.append(name or (int(index) if index is not None else quoted_text(key)))
        start = found.end()
    return tuple(path), start


def _written(step: str | int) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    return f".{step}" if _ROOT.fullmatch(step) else f"[{json.dumps(step, ensure_ascii=False)}]"


def _add_plain(parts: list[Part], text: str) -> None:
    if not text:
        return
    if parts and isinstance(parts[-1], str):
        parts[-1] += text
    else:
        parts.append(text)


def _unclosed(text: str) -> str:
    return (
        f"{_short(text)} has {{{{ without a reference and }}}} after it; write {FORMS}, or"
        ' {{ "{{" }} for the characters themselves'
    )


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else f"{text[:60]}…")
