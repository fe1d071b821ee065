"""Placeholders: from the words of a command and one input to the argv of one task.

Each placeholder stays inside its own argv element; there is no shell unless asked for, so no value can
change what runs. Bytes that are no UTF-8 travel as the lone surrogates of ``os.fsdecode`` (PEP 383).
Source of the names: GNU parallel(1), "replacement strings".
"""

import os.path
import re
import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from mitosis.contracts.errors import InvalidRequest

_TOKEN = re.compile(r"\{\{|\}\}|\{(?:#|\.|/|//|/\.|[A-Za-z_][A-Za-z0-9_]*)?\}")


@dataclass(frozen=True, slots=True)
class Item:
    """One input: its line (or only value), its number from 1, and columns where the source has some."""

    value: str
    number: int
    columns: Mapping[str, str] = field(default_factory=dict)


_OF_VALUE: Mapping[str, Callable[[str], str]] = {
    "": lambda value: value,
    ".": lambda value: os.path.splitext(value)[0],  # noqa: PTH122 - values need not be paths
    "/": os.path.basename,
    "//": lambda value: os.path.dirname(value) or ".",  # noqa: PTH120
    "/.": lambda value: os.path.splitext(os.path.basename(value))[0],  # noqa: PTH119, PTH122
}


@dataclass(frozen=True, slots=True)
class Template:
    """The words of a command.

    ``columns`` are the names that ``{name}`` may use. With ``through_shell`` the words are one shell line, in
    which every value is quoted.
    """

    words: tuple[str, ...]
    columns: frozenset[str] = frozenset()
    through_shell: bool = False

    @classmethod
    def parse(
        cls, words: Sequence[str], columns: Collection[str] = (), *, through_shell: bool = False
    ) -> "Template":
        """Check the placeholders.

        Raises:
            InvalidRequest: no command, or ``{name}`` names no column of a source that has some.
        """
        if not words or not words[0]:
            raise InvalidRequest("a command is needed, as in: mitosis run gzip {} ::: a b")
        template = cls(tuple(words), frozenset(columns), through_shell)
        for word in words:
            for token in _TOKEN.findall(word):
                template._check(token)
        return template

    def _check(self, token: str) -> None:
        name = token[1:-1]
        if self.columns and name.isidentifier() and name not in self.columns:
            raise InvalidRequest(
                f"{token} names no column; there are {', '.join(sorted(self.columns))}"
                f" (write {{{{{name}}}}} for the plain text)"
            )

    @property
    def has_placeholders(self) -> bool:
        return any(
            self._is_placeholder(token) for word in self.words for token in _TOKEN.findall(word)
        )

    def _is_placeholder(self, token: str) -> bool:
        if token in ("{{", "}}"):
            return False
        name = token[1:-1]
        return name == "#" or name in _OF_VALUE or name in self.columns

    def argv(self, item: Item) -> list[str]:
        """The command for one input."""
        words = [self._fill(word, item) for word in self.words]
        return ["sh", "-c", " ".join(words)] if self.through_shell else words

    def _fill(self, word: str, item: Item) -> str:
        def replace(match: re.Match[str]) -> str:
            token = match[0]
            if token in ("{{", "}}"):
                return token[0]
            if not self._is_placeholder(token):
                return token
            text = self._value(token[1:-1], item)
            return shlex.quote(text) if self.through_shell else text

        return _TOKEN.sub(replace, word)

    def _value(self, name: str, item: Item) -> str:
        if name == "#":
            return str(item.number)
        if name in self.columns:
            return item.columns[name]
        return _OF_VALUE[name](item.value)


def corrected(words: Sequence[str], values: Sequence[str] | None = None) -> str:
    """The command line with ``{}`` put at the end of the command, as a person would type it."""
    tail = [":::", *map(_typed, values)] if values else []
    return " ".join([*map(_typed, words), "{}", *tail])


def _typed(word: str) -> str:
    return word if re.fullmatch(r"[\w@%+=:,./{}#-]+", word) else shlex.quote(word)
