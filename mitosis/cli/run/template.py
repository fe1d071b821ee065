"""Placeholders: builds the argv of one task from the words of a command and one input.

A value never leaves its argv element, and no shell is used unless requested, so no value can change what
runs. Bytes that are not UTF-8 are kept as the lone surrogates of ``os.fsdecode`` (PEP 383).
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
"""What a shell has read completely: an escaped character, a closed quotation."""

_HERE_DOCUMENT = re.compile(r"(?<!<)<<(?!<)[^\n]*\n")
_ARITHMETIC = re.compile(r"\(\([^\n]*?\)\)")
"""In arithmetic, ``<<`` is a shift."""


@dataclass(frozen=True, slots=True)
class Item:
    """The input of one task: its line (or only value), its number from 1, and its columns, if any.

    ``batch`` has all values of a task that takes several; ``value`` is then the first of them.
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

    ``columns`` are the names allowed in ``{name}``. With ``through_shell`` the words are one shell line,
    which gets every value as a positional parameter, so no value is ever read as code. Braces that are not
    a placeholder are not replaced; ``{{}}`` is a literal ``{}``.
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
            InvalidRequest: there is no command, or no value for a placeholder.
        """
        if not words or not words[0]:
            raise InvalidRequest("give a command, as in: mitosis run gzip {} ::: a b")
        token = _TOKEN if placeholder is None else literal_placeholder(placeholder)
        kept = (" ".join(words),) if through_shell else tuple(words)
        template = cls(kept, frozenset(columns), through_shell, token)
        for match in template._tokens():
            template._check(match)
            if through_shell and template._is_placeholder(match["name"]):
                _check_quotes(match)
        return template

    def _tokens(self) -> Iterator[re.Match[str]]:
        """Yield everything that looks like a placeholder and is not escaped."""
        for word in self.words:
            yield from (match for match in self.token.finditer(word) if match["plain"] is None)

    def _check(self, match: re.Match[str]) -> None:
        name = match["name"]
        if name == "%":
            raise InvalidRequest(
                "{%}, the slot of the worker, is only known where the task runs",
                hint="read it from MITOSIS_WORKER_ID: sh -c '… $MITOSIS_WORKER_ID'",
            )
        if self._is_missing(name):
            raise InvalidRequest(
                f"{match[0]} names no column; the columns are {', '.join(sorted(self.columns))}"
                f" (write {{{match[0]}}} for the literal text)"
            )

    def _is_missing(self, name: str) -> bool:
        """Return whether the name looks like one of the columns but is not one."""
        if not self.columns or not name or name in self.columns:
            return False
        numbered = any(column.isdigit() for column in self.columns)
        return name.isdigit() if numbered else name.isidentifier()

    @property
    def has_placeholders(self) -> bool:
        return any(self._is_placeholder(match["name"]) for match in self._tokens())

    def unfilled(self) -> Iterator[tuple[str, str]]:
        """Yield each token that names no column: its text and the name."""
        for match in self._tokens():
            name = match["name"]
            if name not in ("", "%") and not self._is_placeholder(name):
                yield match[0], name

    def _is_placeholder(self, name: str) -> bool:
        return name in ("", "#") or name in self.columns

    def check_batches(self) -> None:
        """Check that every placeholder of a value is a whole word, since a batch replaces it by several.

        Raises:
            InvalidRequest: one is inside a longer word.
        """
        for word in self.words:
            match = self.token.search(word)
            if match and match["name"] == "" and match[0] != word and not self.through_shell:
                raise InvalidRequest(
                    f"with --batch, {match[0]} becomes several words, so it cannot be inside {word!r}",
                    option="--batch",
                )

    def argv(self, item: Item) -> list[str]:
        """Return the argv for one input."""
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
        """Return a word with its placeholders replaced; the values of a batch are joined by blanks."""
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
        """Return whether ``{plain}`` would be replaced or refused; only then double braces are an escape."""
        name = plain.rstrip("./")
        return self._is_placeholder(name) or self._is_missing(name) or name == "%"

    def _values(self, name: str, part: str, item: Item) -> list[str]:
        if name == "#":
            return [str(item.number)]
        values = (item.columns[name],) if name else item.values
        return [_PARTS[part](value) for value in values]


def _quoting(match: re.Match[str]) -> str:
    """Return the quote character around a placeholder of a shell line, or an empty text."""
    before = _QUOTED.sub("", match.string[: match.start()])
    return next((sign for sign in before if sign in "'\""), "")


def _check_quotes(match: re.Match[str]) -> None:
    """Refuse placeholders where a shell would not insert the value as one word.

    Single quotes prevent the replacement, a command substitution inside double quotes splits the value, and
    in a here-document the added quotes would become part of the text.

    Raises:
        InvalidRequest: the placeholder is in one of these places.
    """
    before = match.string[: match.start()]
    if _HERE_DOCUMENT.search(_ARITHMETIC.sub("", _QUOTED.sub("", before))):
        raise InvalidRequest(
            f"with --shell, {match[0]} cannot be in a here-document or after one; set a variable first",
            hint=f"as in: x={match[0]}; cat <<END, and then $x in the text",
        )
    quotations = [*_QUOTED.findall(before), _QUOTED.sub("", before).partition('"')[2]]
    inside_command = any(
        word.count("$(") > word.count(")") or word.count("`") % 2 for word in quotations
    )
    if _quoting(match) == "'" or inside_command:
        raise InvalidRequest(
            f"with --shell, {match[0]} cannot be in quotes here; without quotes it is still one word",
            hint=f"""mitosis run --shell 'x={match[0]}; echo "it is $x"'""",
        )


def literal_placeholder(placeholder: str) -> re.Pattern[str]:
    """Return a pattern that matches this text as ``{}`` and no braces (xargs -I).

    Raises:
        InvalidRequest: the placeholder is empty.
    """
    if not placeholder:
        raise InvalidRequest("must not be empty", option="--replace")
    return re.compile(rf"(?P<plain>(?!))|{re.escape(placeholder)}(?P<name>)(?P<part>)")


def format_argv(argv: Sequence[str]) -> str:
    """Return a readable argv; a word that is not UTF-8 is written as ``$'…'``, which bash reads."""
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


def with_placeholder(words: Sequence[str], tail: Sequence[str] = ()) -> str:
    """Return the command line with ``{}`` at the end of the command, as it would be typed."""
    return " ".join([*map(shell_quoted, words), "{}", *map(shell_quoted, tail)])


def shell_quoted(word: str) -> str:
    """Return a word, quoted for a shell where necessary."""
    return word if re.fullmatch(r"[\w@%+=:,./{}#-]+", word) else shlex.quote(word)
