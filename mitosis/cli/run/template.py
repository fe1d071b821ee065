"""Placeholders: from the words of a command and one input to the argv of one task.

Each placeholder stays inside its own argv element; there is no shell unless asked for, so no value can
change what runs. Bytes that are no UTF-8 travel as the lone surrogates of ``os.fsdecode`` (PEP 383).
Source of the names: GNU parallel(1), "replacement strings".
"""

import os
import re
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from mitosis.contracts.errors import InvalidRequest

_NAME = r"(?:[#%]|[A-Za-z_][A-Za-z0-9_]*|[0-9]+)?"
_PART = r"(?:\.|//|/\.|/)?"
_TOKEN = re.compile(
    rf"\{{\{{(?P<plain>{_NAME}{_PART})\}}\}}|\{{(?P<name>{_NAME})(?P<part>{_PART})\}}"
)


_QUOTED = re.compile(r"\\.|'[^']*'|\"(?:\\.|[^\"\\])*\"", re.DOTALL)
"""What a shell has finished reading: an escaped sign, a closed quotation."""

_HERE_DOCUMENT = re.compile(r"(?<!<)<<(?!<)[^\n]*\n")
_ARITHMETIC = re.compile(r"\(\([^\n]*?\)\)")
"""There ``<<`` is a shift."""


@dataclass(frozen=True, slots=True)
class Item:
    """One task's input: its line (or only value), its number from 1, and columns where the source has some.

    ``batch`` holds all values of a task that takes several; ``value`` is the first of them then.
    """

    value: str
    number: int
    columns: Mapping[str, str] = field(default_factory=dict)
    batch: tuple[str, ...] = ()

    @property
    def values(self) -> tuple[str, ...]:
        return self.batch or (self.value,)


_PARTS: Mapping[str, Callable[[str], str]] = {
    "": lambda value: value,
    ".": lambda value: os.path.splitext(value)[0],  # noqa: PTH122 - values need not be paths
    "/": os.path.basename,
    "//": lambda value: os.path.dirname(value) or ".",  # noqa: PTH120
    "/.": lambda value: os.path.splitext(os.path.basename(value))[0],  # noqa: PTH119, PTH122
}


@dataclass(frozen=True, slots=True)
class Template:
    """The words of a command.

    ``columns`` are the names that ``{name}`` may use. With ``through_shell`` the words are one shell line,
    which gets every value as a positional parameter, so that no value is ever read as code. Braces that are
    no placeholder stay as they are; ``{{}}`` is a plain ``{}``.
    """

    words: tuple[str, ...]
    columns: frozenset[str] = frozenset()
    through_shell: bool = False
    token: re.Pattern[str] = _TOKEN

    @classmethod
    def parse(
        cls,
        words: Sequence[str],
        columns: Collection[str] = (),
        *,
        through_shell: bool = False,
        placeholder: str | None = None,
    ) -> "Template":
        """Check the placeholders.

        Raises:
            InvalidRequest: no command, or a placeholder for which there is no value.
        """
        if not words or not words[0]:
            raise InvalidRequest("a command is needed, as in: mitosis run gzip {} ::: a b")
        token = _TOKEN if placeholder is None else only(placeholder)
        kept = (" ".join(words),) if through_shell else tuple(words)
        template = cls(kept, frozenset(columns), through_shell, token)
        for match in template._tokens():
            template._check(match)
            if through_shell and template._is_placeholder(match["name"]):
                _check_quotes(match)
        return template

    def _tokens(self) -> Iterator[re.Match[str]]:
        """What looks like a placeholder and is not escaped."""
        for word in self.words:
            yield from (match for match in self.token.finditer(word) if match["plain"] is None)

    def _check(self, match: re.Match[str]) -> None:
        name = match["name"]
        if name == "%":
            raise InvalidRequest(
                "{%}, the slot of the worker, is known only where the task runs",
                hint="there it is in MITOSIS_WORKER_ID: sh -c '… $MITOSIS_WORKER_ID'",
            )
        if self._is_missing(name):
            raise InvalidRequest(
                f"{match[0]} names no column; there are {', '.join(sorted(self.columns))}"
                f" (write {{{match[0]}}} for the plain text)"
            )

    def _is_missing(self, name: str) -> bool:
        """It looks like one of our columns and is none of them."""
        if not self.columns or not name or name in self.columns:
            return False
        numbered = any(column.isdigit() for column in self.columns)
        return name.isdigit() if numbered else name.isidentifier()

    @property
    def has_placeholders(self) -> bool:
        return any(self._is_placeholder(match["name"]) for match in self._tokens())

    def unfilled(self) -> Iterator[tuple[str, str]]:
        """What names a column and is none, as it is written, and the name."""
        for match in self._tokens():
            name = match["name"]
            if name not in ("", "%") and not self._is_placeholder(name):
                yield match[0], name

    def _is_placeholder(self, name: str) -> bool:
        return name in ("", "#") or name in self.columns

    def check_batches(self) -> None:
        """Every placeholder of a value must be a word of its own: it becomes several.

        Raises:
            InvalidRequest: one is inside a longer word.
        """
        for word in self.words:
            match = self.token.search(word)
            if match and match["name"] == "" and match[0] != word and not self.through_shell:
                raise InvalidRequest(
                    f"with --batch {match[0]} becomes several words, so it cannot be inside {word!r}",
                    option="--batch",
                )

    def argv(self, item: Item) -> list[str]:
        """The command for one input."""
        if self.through_shell:
            return self._shell_line(item)
        return [filled for word in self.words for filled in self._filled(word, item)]

    def _filled(self, word: str, item: Item) -> Iterator[str]:
        match = self.token.fullmatch(word)
        if item.batch and match and match["name"] == "":
            yield from map(_PARTS[match["part"]], item.batch)
        else:
            yield self.text(word, item)

    def _shell_line(self, item: Item) -> list[str]:
        values: list[str] = []

        def parameters(match: re.Match[str]) -> str:
            given = self._values(match["name"], match["part"], item)
            if match["name"] == "#":
                return given[0]
            values.extend(given)
            numbers = range(len(values) - len(given) + 1, len(values) + 1)
            one = "${%d}" if _quoting(match) == '"' else '"${%d}"'
            return " ".join(one % number for number in numbers)

        return ["sh", "-c", self._replaced(self.words[0], parameters), "sh", *values]

    def text(self, word: str, item: Item) -> str:
        """One word with its placeholders replaced; the values of a batch with blanks between them."""
        return self._replaced(
            word, lambda match: " ".join(self._values(match["name"], match["part"], item))
        )

    def _replaced(self, word: str, filled: Callable[[re.Match[str]], str]) -> str:
        def replace(match: re.Match[str]) -> str:
            if (plain := match["plain"]) is not None:
                return f"{{{plain}}}" if self._needs_escape(plain) else match[0]
            return filled(match) if self._is_placeholder(match["name"]) else match[0]

        return self.token.sub(replace, word)

    def _needs_escape(self, plain: str) -> bool:
        """Would ``{plain}`` be replaced or refused? Only then are double braces ours."""
        name = plain.rstrip("./")
        return self._is_placeholder(name) or self._is_missing(name) or name == "%"

    def _values(self, name: str, part: str, item: Item) -> list[str]:
        if name == "#":
            return [str(item.number)]
        values = (item.columns[name],) if name else item.values
        return [_PARTS[part](value) for value in values]


def _quoting(match: re.Match[str]) -> str:
    """The quote in which a placeholder of a shell line stands, or nothing."""
    before = _QUOTED.sub("", match.string[: match.start()])
    return next((sign for sign in before if sign in "'\""), "")


def _check_quotes(match: re.Match[str]) -> None:
    """In single quotes a shell replaces nothing; a command inside double quotes would split the value.

    In a here-document the quotes that we put around a value would be part of the text.

    Raises:
        InvalidRequest: the placeholder stands in one of them.
    """
    before = match.string[: match.start()]
    if _HERE_DOCUMENT.search(_ARITHMETIC.sub("", _QUOTED.sub("", before))):
        raise InvalidRequest(
            f"with --shell {match[0]} cannot stand in a here-document or after one; set a variable first",
            hint=f"as in: x={match[0]}; cat <<END, and then $x in the text",
        )
    quotations = [*_QUOTED.findall(before), _QUOTED.sub("", before).partition('"')[2]]
    inside_command = any(
        word.count("$(") > word.count(")") or word.count("`") % 2 for word in quotations
    )
    if _quoting(match) == "'" or inside_command:
        raise InvalidRequest(
            f"with --shell {match[0]} cannot stand in quotes here; write it without them: it is one word",
            hint=f"""mitosis run --shell 'x={match[0]}; echo "it is $x"'""",
        )


def only(placeholder: str) -> re.Pattern[str]:
    """The pattern of a template in which this text means ``{}`` and braces mean nothing (xargs -I).

    Raises:
        InvalidRequest: the placeholder is empty.
    """
    if not placeholder:
        raise InvalidRequest("must not be empty", option="--replace")
    return re.compile(rf"(?P<plain>(?!))|{re.escape(placeholder)}(?P<name>)(?P<part>)")


def shown(argv: Sequence[str]) -> str:
    """An argv for people to read; a word that is no UTF-8 as ``$'…'`` of bash, which a shell can take."""
    return f"[{', '.join(map(_shown_word, argv))}]"


def _shown_word(word: str) -> str:
    try:
        word.encode()
    except UnicodeEncodeError:
        return f"$'{''.join(map(_shown_byte, os.fsencode(word)))}'"
    return repr(word)


def _shown_byte(byte: int) -> str:
    sign = chr(byte)
    return sign if sign.isascii() and sign.isprintable() and sign not in "'\\" else f"\\x{byte:02x}"


def corrected(words: Sequence[str], tail: Sequence[str] = ()) -> str:
    """The command line with ``{}`` put at the end of the command, as a person would type it."""
    return " ".join([*map(typed, words), "{}", *map(typed, tail)])


def typed(word: str) -> str:
    """One word, quoted for a shell if it must be."""
    return word if re.fullmatch(r"[\w@%+=:,./{}#-]+", word) else shlex.quote(word)
