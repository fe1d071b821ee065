"""YAML with the line and column of every value, bounded in size, depth and aliases.

Types are those of JSON, as in the core schema of YAML 1.2: ``on``, ``no``, ``2026-11-28`` and ``010`` in
YAML 1.1 are a truth value, a date and an octal number; here they are text and a number as written.
It reads the events of the parser, which builds nothing by itself: no tags, no objects.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeAlias

import yaml
from yaml.events import (
    AliasEvent,
    MappingEndEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)

from mitosis.jobs.problems import Path, Place, Problem

Event: TypeAlias = Any
"""An event of the parser: each kind has fields of its own."""

MAX_BYTES = 1_000_000
"""Of the text."""
MAX_DEPTH = 50
MAX_VALUES = 200_000
"""Values, each counted as often as aliases repeat it."""
_TAGS = {None, "!", "tag:yaml.org,2002:str"}
_NULL = {"", "~", "null", "Null", "NULL"}
_TRUTH = {
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9]{0,4000})")
_FLOAT = re.compile(r"[-+]?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Writer(yaml.SafeDumper):
    """Writes what :func:`read_yaml` reads back: YAML 1.1 leaves texts such as 1e3 without quotes."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _write_text(writer: _Writer, text: str) -> yaml.ScalarNode:
    is_other = not isinstance(_plain(text), str) or not text.isascii()
    return writer.represent_scalar("tag:yaml.org,2002:str", text, style='"' if is_other else None)


_Writer.add_representer(str, _write_text)


def write_yaml(value: Any, *, flow: bool = False) -> str:
    """Return a JSON value as YAML that :func:`read_yaml` reads back.

    Args:
        value: what to write.
        flow: with brackets on few lines, as JSON.
    """
    is_plain = str(value).isprintable()
    return yaml.dump(
        value, Dumper=_Writer, sort_keys=False, default_flow_style=flow, allow_unicode=is_plain
    )


class YamlProblem(ValueError):
    """The text is no YAML, or none that is accepted here."""

    def __init__(self, message: str, place: Place) -> None:
        """``place`` is the line and column, from 1."""
        super().__init__(message)
        self.problem = Problem((), message, place)


@dataclass(slots=True)
class Document:
    """One document: its value, and where each part of it begins."""

    value: Any
    places: dict[Path, Place]
    repeated: list[Problem] = field(default_factory=list)
    """Keys that an object has twice."""


def read_yaml(text: str | bytes) -> Document:
    """Return the value of a text with one document.

    Raises:
        YamlProblem: it is no YAML, too large, too deep, or has tags, merge keys or several documents.
    """
    return _Reader(_decoded(text)).document()


def _decoded(text: str | bytes) -> str:
    if len(text) > MAX_BYTES:
        raise YamlProblem(f"has {len(text)} bytes; a definition may have {MAX_BYTES}", (1, 1))
    if isinstance(text, str):
        return text
    try:
        return text.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = text[: error.start].decode(errors="replace")
        wrong = f"byte {text[error.start]:#04x} is not UTF-8 text"
        raise YamlProblem(wrong, _place_after(before)) from None


def _place_after(before: str) -> Place:
    return before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1


@dataclass(frozen=True, slots=True)
class _Anchored:
    value: Any
    size: int
    depth: int


class _Reader:
    """Builds one document from events."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._events = self._checked_events()
        self._places: dict[Path, Place] = {}
        self._repeated: list[Problem] = []
        self._anchors: dict[str, _Anchored | None] = {}
        self._values = 0
        self._deepest = 0

    def document(self) -> Document:
        next(self._events)  # the stream begins
        if not isinstance(next(self._events), yaml.DocumentStartEvent):
            raise YamlProblem("is empty; write the fields of a job, as name: pipeline", (1, 1))
        value = self._value(next(self._events), ())
        next(self._events)  # the document ends
        following = next(self._events)
        if isinstance(following, yaml.DocumentStartEvent):
            self._refuse(following, "a second document begins; a file has one job")
        return Document(value, self._places, self._repeated)

    def _checked_events(self) -> Iterator[Event]:
        """Yield the events of the parser; its errors become problems."""
        try:
            yield from yaml.parse(self._text, Loader=_LOADER)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            place = (mark.line + 1, mark.column + 1) if mark else (1, 1)
            context = f" {error.context}" if error.context else ""
            raise YamlProblem(f"is no YAML: {error.problem}{context}", place) from None
        except yaml.reader.ReaderError as error:
            position = error.position if isinstance(error.position, int) else 0
            place = _place_after(self._text.encode()[:position].decode(errors="replace"))
            raise YamlProblem(f"is no YAML: {error.reason}", place) from None

    def _value(self, event: Event, path: Path) -> Any:
        self._places[path] = _place(event)
        self._count(event, 1)
        if len(path) >= MAX_DEPTH:
            self._refuse(event, f"is nested deeper than {MAX_DEPTH} levels")
        if isinstance(event, AliasEvent):
            return self._alias(event, path)
        if event.tag not in _TAGS:
            self._refuse(event, f"the tag {event.tag} is not accepted; only plain values are")
        self._deepest = max(self._deepest, len(path))
        if event.anchor is None:
            return self._content(event, path)
        return self._anchored(event, path)

    def _anchored(self, event: Event, path: Path) -> Any:
        """Build a value that aliases may repeat; itself it must not contain."""
        before, deepest = self._values, self._deepest
        self._anchors[event.anchor] = None
        self._deepest = len(path)
        value = self._content(event, path)
        size, depth = self._values - before + 1, self._deepest - len(path)
        self._anchors[event.anchor] = _Anchored(value, size, depth)
        self._deepest = max(deepest, self._deepest)
        return value

    def _alias(self, event: Event, path: Path) -> Any:
        anchored = self._anchors.get(event.anchor)
        if anchored is None:
            why = "is within its own anchor" if event.anchor in self._anchors else "has no anchor"
            self._refuse(event, f"the alias *{event.anchor} {why}")
        self._count(event, anchored.size)
        self._deepest = max(self._deepest, len(path) + anchored.depth)
        if len(path) + anchored.depth >= MAX_DEPTH:
            self._refuse(event, f"is nested deeper than {MAX_DEPTH} levels")
        return anchored.value

    def _content(self, event: Event, path: Path) -> Any:
        if isinstance(event, ScalarEvent):
            return _scalar(event)
        if isinstance(event, SequenceStartEvent):
            return self._sequence(path)
        return self._mapping(path)

    def _sequence(self, path: Path) -> list[Any]:
        items: list[Any] = []
        while not isinstance(event := next(self._events), SequenceEndEvent):
            items.append(self._value(event, (*path, len(items))))
        return items

    def _mapping(self, path: Path) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while not isinstance(event := next(self._events), MappingEndEvent):
            key = self._key(event)
            if key in found:
                line = self._places[*path, key][0]
                message = f"is given twice, first in line {line}; remove one"
                self._repeated.append(Problem((*path, key), message, _place(event)))
                self._value(next(self._events), (*path, f"{key}\0"))  # which no key has
                continue
            found[key] = self._value(next(self._events), (*path, key))
            self._places[*path, key] = _place(event)
        return found

    def _key(self, event: Event) -> str:
        if not isinstance(event, ScalarEvent):
            self._refuse(event, "a key must be plain text")
        if event.implicit[0] and event.value == "<<":
            self._refuse(
                event, "merge keys are not accepted; write the fields, or use a whole alias"
            )
        return str(event.value)

    def _count(self, event: Event, values: int) -> None:
        self._values += values
        if self._values > MAX_VALUES:
            self._refuse(
                event, f"has more than {MAX_VALUES} values, with those that aliases repeat"
            )

    def _refuse(self, event: Event, message: str) -> NoReturn:
        raise YamlProblem(message, _place(event))


def _place(event: Event) -> Place:
    return event.start_mark.line + 1, event.start_mark.column + 1


def _scalar(event: ScalarEvent) -> Any:
    """Return the value of a scalar; only plain ones may be something else than text."""
    return _plain(event.value) if event.implicit[0] else event.value


def _plain(text: str) -> Any:
    """Return the value of a text without quotes."""
    if text in _NULL:
        return None
    if text in _TRUTH:
        return _TRUTH[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    return float(text) if _FLOAT.fullmatch(text) else text
