"""The sources of inputs of a run. Each is an iterator, so tasks of an open pipe start at once.

Lines are split at newline (or NUL) and decoded by ``os.fsdecode``, which preserves every byte.
"""

import csv
import io
import json
import math
import os
import re
import select
import stat
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice, product
from pathlib import Path
from typing import BinaryIO

from mitosis.cli.run.template import Item
from mitosis.contracts.bounded_files import MOST_TASKS_BYTES, read_stream
from mitosis.contracts.errors import InvalidRequest

_RANGE = re.compile(r"(-?\d+)-(-?\d+)(?::(\d+))?")
_CHUNK = 65_536
HAS_DATA_SECONDS = 0.2
VALUES = ":::"
LINKED = ":::+"
LIST_OPENINGS = (VALUES, LINKED)
"""Words that begin a list of values on the command line."""


@dataclass(frozen=True, slots=True)
class Source:
    """Inputs, with their columns, and their number if it is known in advance."""

    items: Iterable[Item]
    columns: frozenset[str] = frozenset()
    count: int | None = None
    pauses: bool = False
    """Whether inputs may arrive slowly, as from a pipe or a terminal."""


def no_source() -> Source:
    """Return a source for one task without input."""
    return Source((Item("", 1),), count=1)


def from_values(values: Sequence[str]) -> Source:
    """Return the values of ``::: a b c``."""
    return Source(_numbered(values), count=len(values))


def from_lists(lists: Sequence[tuple[str, Sequence[str]]]) -> Source:
    """Return every combination of ``::: a b ::: 1 2``, as ``{1}`` and ``{2}``.

    A list after ``:::+`` is paired with the one before it, value by value.

    Args:
        lists: each list with the word before it.

    Raises:
        InvalidRequest: paired lists have different lengths.
    """
    rows: list[list[tuple[str, ...]]] = []
    for opening, values in lists:
        if opening == LINKED and rows:
            if len(rows[-1]) != len(values):
                raise InvalidRequest(
                    f"there are {len(values)} values after {LINKED}, but {len(rows[-1])} before it"
                )
            rows[-1] = [(*row, value) for row, value in zip(rows[-1], values, strict=True)]
        else:
            rows.append([(value,) for value in values])
    whole = (tuple(chain.from_iterable(parts)) for parts in product(*rows))
    names = [str(number) for number in range(1, len(lists) + 1)]
    return Source(_rows(whole, names), frozenset(names), math.prod(map(len, rows)))


def _rows(rows: Iterable[Sequence[str]], names: Sequence[str]) -> Iterator[Item]:
    for number, row in enumerate(rows, 1):
        if len(row) != len(names):
            raise InvalidRequest(
                f"line {number} has {len(row)} columns, the first line {len(names)}",
                option="--colsep",
            )
        yield Item(row[0], number, dict(zip(names, row, strict=True)))


def split_columns(source: Source, separator: str) -> Source:
    """Split each line at the separator, as ``{1}``, ``{2}`` …; waits for the first line.

    Raises:
        InvalidRequest: the separator is empty; while reading, a line has another number of columns.
    """
    separator = separator.replace("\\t", "\t")
    if not separator:
        raise InvalidRequest("must not be empty", option="--colsep")
    items = iter(source.items)
    first = next(items, None)
    if first is None:
        return source
    names = [str(number) for number in range(1, len(first.value.split(separator)) + 1)]
    rows = (item.value.split(separator) for item in chain([first], items))
    return replace(source, items=_rows(rows, names), columns=frozenset(names))


def in_batches(source: Source, size: int) -> Source:
    """Combine ``size`` values into one input.

    Raises:
        InvalidRequest: the size is not positive, or the inputs have columns.
    """
    if size < 1:
        raise InvalidRequest("must be 1 or more", option="--batch")
    if source.columns:
        raise InvalidRequest("inputs with columns cannot be combined", option="--batch")
    count = None if source.count is None else -(-source.count // size)
    return replace(source, items=_batches(iter(source.items), size), count=count)


def _batches(items: Iterator[Item], size: int) -> Iterator[Item]:
    number = 0
    while batch := tuple(item.value for item in islice(items, size)):
        number += 1
        yield Item(batch[0], number, batch=batch)


def from_range(text: str) -> Source:
    """Return the numbers of ``A-B`` or ``A-B:STEP``, both ends included; ``001-100`` keeps its zeros.

    Raises:
        InvalidRequest: the text is neither, or the range is empty.
    """
    match = _RANGE.fullmatch(text)
    if match is None:
        raise InvalidRequest("write a range as 1-100 or 1-100:2", option="--range")
    first, last, step = int(match[1]), int(match[2]), int(match[3] or 1)
    if max(abs(first), abs(last)) > sys.maxsize // 2:
        raise InvalidRequest(f"the numbers of {text} are too large", option="--range")
    numbers = range(first, last + 1, step) if step else range(0)
    if not numbers:
        raise InvalidRequest(f"the range {text} is empty", option="--range")
    ends = (match[1], match[2])
    padded = any(re.match(r"-?0\d", end) for end in ends)
    width = max(map(len, ends)) if padded else 0
    return Source(_numbered(f"{number:0{width}d}" for number in numbers), count=len(numbers))


def from_lines(stream: BinaryIO, *, nul: bool = False) -> Source:
    """Return the lines of a file or pipe as they arrive; empty lines are skipped, unless ``nul``."""
    lines = _lines(stream, b"\0" if nul else b"\n")
    return Source(_numbered(lines), pauses=_may_pause(stream))


def from_csv(stream: BinaryIO) -> Source:
    """Return the rows below a header line; ``{column}`` is a field, ``{}`` the first one.

    Raises:
        InvalidRequest: the file is empty, has no header, or two columns have the same name.
    """
    name = name_of(stream)
    text = io.TextIOWrapper(stream, "utf-8-sig", "surrogateescape", newline="")
    rows = csv.reader(text, strict=True)
    header = next(_readable_rows(rows, name), None)
    if header is None:
        raise InvalidRequest(
            f"{name} is empty: its first line must name the columns", option="--from-csv"
        )
    if not header or len(set(header)) != len(header):
        raise InvalidRequest(
            f"the first line of {name} must name the columns, each once", option="--from-csv"
        )
    return Source(_csv_items(rows, header, name), frozenset(header), pauses=_may_pause(stream))


def _readable_rows(rows: Iterator[list[str]], name: str) -> Iterator[list[str]]:
    try:
        yield from rows
    except csv.Error as error:
        raise InvalidRequest(f"{name} is not CSV: {error}", option="--from-csv") from None


def _csv_items(rows: Iterator[list[str]], header: list[str], name: str) -> Iterator[Item]:
    number = 0
    for row in _readable_rows(rows, name):
        if not row:
            continue
        number += 1
        if len(row) != len(header):
            raise InvalidRequest(
                f"row {number} of {name} has {len(row)} fields, the header has {len(header)}",
                option="--from-csv",
            )
        yield Item(row[0], number, dict(zip(header, row, strict=True)))


def from_json(stream: BinaryIO) -> Source:
    """Return the values of a list, or one value per line; objects fill ``{key}``, other values ``{}``.

    Raises:
        InvalidRequest: the file is too large or not JSON, or its objects have different keys.
    """
    name = name_of(stream)
    try:
        data = read_stream(stream, MOST_TASKS_BYTES)
    except OSError as error:
        raise InvalidRequest(
            f"cannot read {name}: {error.strerror}", option="--from-json"
        ) from None
    try:
        values = json.loads(data)
    except ValueError:
        values = list(_json_lines(data, name))
    if not isinstance(values, list):
        values = [values]
    keys = frozenset(values[0]) if values and isinstance(values[0], dict) else frozenset()
    items = [_finite_item(value, number, keys, name) for number, value in enumerate(values, 1)]
    return Source(items, keys, len(items))


def _finite_item(value: object, number: int, keys: frozenset[str], name: str) -> Item:
    """Return the input; refuse NaN, Infinity and 1e400, which Python reads and JSON does not have."""
    try:
        return _json_item(value, number, keys, name)
    except ValueError:
        raise InvalidRequest(
            f"entry {number} of {name} has a number that is not JSON, or too large",
            option="--from-json",
        ) from None


def _json_lines(data: bytes, name: str) -> Iterator[object]:
    for number, line in enumerate(data.splitlines(), 1):
        if line.strip():
            try:
                yield json.loads(line)
            except ValueError as error:
                raise InvalidRequest(
                    f"line {number} of {name} is not JSON: {error}", option="--from-json"
                ) from None


def _json_item(value: object, number: int, keys: frozenset[str], name: str) -> Item:
    if not isinstance(value, dict) or not keys:
        if keys:
            raise InvalidRequest(f"entry {number} of {name} is not an object", option="--from-json")
        return Item(_text(value), number)
    if frozenset(value) != keys:
        raise InvalidRequest(
            f"entry {number} of {name} has other keys than the first entry: {', '.join(sorted(keys))}",
            option="--from-json",
        )
    columns = {key: _text(field) for key, field in value.items()}
    return Item(json.dumps(value, ensure_ascii=False), number, columns)


def _text(value: object) -> str:
    return (
        value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, allow_nan=False)
    )


def name_of(stream: BinaryIO) -> str:
    """Return the name of a stream for messages: the path that was opened."""
    return (
        "standard input" if stream is sys.stdin.buffer else str(getattr(stream, "name", "the file"))
    )


def _may_pause(stream: BinaryIO) -> bool:
    try:
        return not stat.S_ISREG(os.fstat(stream.fileno()).st_mode)
    except OSError:  # a stream in memory
        return False


def open_file(path: Path, option: str) -> BinaryIO:
    """Open a file for reading; ``-`` is standard input.

    Raises:
        InvalidRequest: it cannot be opened.
    """
    if str(path) == "-":
        return sys.stdin.buffer
    try:
        return path.open("rb")
    except OSError as error:
        raise InvalidRequest(f"cannot read {path}: {error.strerror}", option=option) from None


def stdin_is_given(*, needed: bool) -> bool:
    """Return whether inputs come from standard input; never from a terminal.

    Args:
        needed: the command has a placeholder. Then, as for xargs, an open pipe is waited for, and an empty
            pipe or /dev/null (which replaces a closed descriptor) gives no inputs. Without a placeholder,
            only a file or a pipe with data counts: many programs are started with a silent pipe.
    """
    try:
        mode = os.fstat(0).st_mode
    except OSError:
        return False
    if needed:
        return not os.isatty(0)
    if stat.S_ISREG(mode):
        return True
    if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
        return False
    return bool(select.select([0], [], [], HAS_DATA_SECONDS)[0])


def _numbered(values: Iterable[str]) -> Iterator[Item]:
    return (Item(value, number) for number, value in enumerate(values, 1))


def _lines(stream: BinaryIO, end: bytes) -> Iterator[str]:
    """Yield whole records as soon as they arrive; read1 returns what a pipe has without waiting for more."""
    read = getattr(stream, "read1", stream.read)
    rest = b""
    while chunk := read(_CHUNK):
        *whole, rest = (rest + chunk).split(end)
        yield from (os.fsdecode(record) for record in whole if record or end == b"\0")
    if rest:
        yield os.fsdecode(rest)
