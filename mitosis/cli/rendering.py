"""Renders the results of commands: tables as text, JSON for programs, or ids only.

A command builds an :class:`Item` or a :class:`Table`; the :class:`Output` decides the form. rich is
imported only when standard output is a terminal (it honours ``NO_COLOR``); elsewhere the same table is
plain text.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import accumulate, zip_longest
from typing import Any, Protocol, TextIO

import msgspec

PROSE_WIDTH = 30
"""A column of sentences wraps between words, down to this width; other columns never wrap."""
GAP = "  "
"""Separates columns, and indents lines below a row."""


@dataclass(frozen=True, slots=True)
class Item:
    """One object: ``data`` for JSON, ``fields`` (label, text) for text, ``id`` for --quiet."""

    data: object
    fields: Sequence[tuple[str, str]]
    id: str


@dataclass(frozen=True, slots=True)
class Table:
    """Many objects: ``data`` for JSON, ``rows`` below ``columns`` for text, ``ids`` for --quiet."""

    data: object
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    ids: Sequence[str]
    empty: str
    """The text shown when there is no row."""
    prose: str | None = None
    """The column that has sentences. The most important of the other columns come first."""


class Output(Protocol):
    def item(self, item: Item) -> None: ...

    def table(self, table: Table) -> None: ...

    def note(self, text: str) -> None:
        """Print a remark in text output only: what was done, what to do next."""
        ...


class JsonOutput:
    """One JSON document on standard output."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def item(self, item: Item) -> None:
        self._write(item.data)

    def table(self, table: Table) -> None:
        self._write(table.data)

    def note(self, text: str) -> None:
        """Omit the remark: it is not JSON."""

    def _write(self, data: object) -> None:
        text = msgspec.json.format(msgspec.json.encode(data), indent=2)
        self._stream.write(text.decode() + "\n")


class QuietOutput:
    """One id per line."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def item(self, item: Item) -> None:
        self._stream.write(f"{item.id}\n")

    def table(self, table: Table) -> None:
        self._stream.writelines(f"{one}\n" for one in table.ids)

    def note(self, text: str) -> None:
        """Omit the remark: it is not an id."""


class TextOutput:
    """Aligned plain text, for a pipe or a file."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def item(self, item: Item) -> None:
        width = max((len(label) for label, _ in item.fields), default=0)
        for label, text in item.fields:
            first, *more = printable(text).splitlines() or [""]
            self._line(f"{label:<{width}}  {first}")
            for line in more:
                self._line(f"{'':<{width}}  {line}")

    def table(self, table: Table) -> None:
        if not table.rows:
            self._line(table.empty)
            return
        rows = [table.columns, *([one_line(text) for text in row] for row in table.rows)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for row in rows:
            cells = (f"{text:<{width}}" for text, width in zip(row, widths, strict=True))
            self._line("  ".join(cells))

    def note(self, text: str) -> None:
        self._line(printable(text))

    def _line(self, text: str) -> None:
        self._stream.write(text.rstrip() + "\n")


class TerminalOutput(TextOutput):
    """Text in the width and with the colours of a terminal."""

    def item(self, item: Item) -> None:
        """Print labels beside their texts; a text with a word wider than that column goes below its label."""
        from rich.cells import cell_len

        console = self._console()
        width = max((cell_len(label) for label, _ in item.fields), default=0)
        room = console.width - width - len(GAP)
        for label, text in item.fields:
            lines = printable(text).splitlines() or [""]
            if any(cell_len(word) > room for line in lines for word in line.split()):
                beside, below = [""], [_plain(GAP + line) for line in lines]
            else:
                beside, below = [*_wrapped(lines, room, console)], []
            for name, part in zip_longest([label], beside, fillvalue=""):
                padding = " " * (width - cell_len(name)) + GAP
                console.print(_plain(name, "dim").append(padding).append(part), soft_wrap=True)
            for line in below:
                console.print(line, soft_wrap=True)

    def table(self, table: Table) -> None:
        """Print the columns that fit side by side and the others below each row; no word is broken."""
        from rich.cells import cell_len

        if not table.rows:
            self._line(table.empty)
            return
        rows = [[one_line(text) for text in row] for row in table.rows]
        widths = [max(map(cell_len, cells)) for cells in zip(table.columns, *rows, strict=True)]
        if table.prose is not None:
            column = list(table.columns).index(table.prose)
            widths[column] = min(widths[column], PROSE_WIDTH)
        fit = columns_that_fit(widths, self._console().width)
        if fit == len(widths):
            self._grid(table, rows)
        else:
            self._lines_of(table.columns, rows, widths[:fit])

    def _grid(self, table: Table, rows: Sequence[Sequence[str]]) -> None:
        from rich.table import Table as Grid

        grid = Grid(box=None, pad_edge=False, header_style="bold")
        for column in table.columns:
            grid.add_column(column, overflow="fold", no_wrap=column != table.prose)
        for row in rows:
            grid.add_row(*map(_plain, row))
        self._print(grid)

    def _lines_of(
        self, columns: Sequence[str], rows: Sequence[Sequence[str]], widths: Sequence[int]
    ) -> None:
        console = self._console()
        console.print(_plain(_aligned(columns, widths), "bold"), soft_wrap=True)
        for row in rows:
            console.print(_plain(_aligned(row, widths)), soft_wrap=True)
            more = zip(columns[len(widths) :], row[len(widths) :], strict=True)
            parts = [f"{column} {text}" for column, text in more if text]
            for line in packed(parts, console.width - len(GAP)):
                console.print(_plain(GAP + line), soft_wrap=True)

    def _print(self, grid: Any) -> None:
        self._console().print(grid)

    def _console(self) -> Any:
        from rich.console import Console

        return Console(file=self._stream, highlight=False)


def columns_that_fit(widths: Sequence[int], room: int) -> int:
    """Return how many of the first columns fit into ``room`` cells; at least one."""
    ends = accumulate(widths, lambda end, width: end + len(GAP) + width)
    return max(1, sum(end <= room for end in ends))


def packed(parts: Sequence[str], room: int) -> list[str]:
    """Return the parts joined into lines of at most ``room`` characters; a longer part has its own line."""
    lines: list[str] = []
    for part in parts:
        if lines and len(lines[-1]) + len(GAP) + len(part) <= room:
            lines[-1] += GAP + part
        else:
            lines.append(part)
    return lines


def _wrapped(lines: Sequence[str], room: int, console: Any) -> Iterator[Any]:
    for line in lines:
        yield from _plain(line).wrap(console, room) or [_plain("")]


def _aligned(row: Sequence[str], widths: Sequence[int]) -> str:
    from rich.cells import cell_len

    cells = zip(row, widths, strict=False)
    return GAP.join(text + " " * (width - cell_len(text)) for text, width in cells).rstrip()


def choose_output(*, as_json: bool, quiet: bool, stream: TextIO | None = None) -> Output:
    """Return the output for these options and this stream (default: standard output)."""
    out = stream or sys.stdout
    if as_json:
        return JsonOutput(out)
    if quiet:
        return QuietOutput(out)
    return TerminalOutput(out) if out.isatty() else TextOutput(out)


def printable(text: str) -> str:
    """Return text with control characters escaped, so that output of a task cannot control a terminal."""
    return "".join(
        char if char in "\n\t" or char.isprintable() else f"\\x{ord(char):02x}" for char in text
    )


def one_line(text: str) -> str:
    """Return text on one line, with control characters escaped."""
    return printable(text).replace("\n", "⏎").replace("\t", " ")


def time_text(moment: datetime | None) -> str:
    """Return the local time to the second; empty for None."""
    return "" if moment is None else moment.astimezone().strftime("%Y-%m-%d %H:%M:%S")


def span_text(span: timedelta | float | None) -> str:
    """Return a duration as in ``1d2h``, ``3m20s`` or ``12.3s``; empty for None."""
    if span is None:
        return ""
    seconds = span.total_seconds() if isinstance(span, timedelta) else span
    if seconds < 60:
        return f"{seconds:.3g}s"
    parts = []
    rest = round(seconds)
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)):
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts[:2])


def elapsed_text(start: datetime | None, end: datetime | None) -> str:
    """Return the time between the two moments; empty while one is missing."""
    return span_text(end - start) if start and end else ""


def _plain(text: str, style: str = "") -> Any:
    from rich.text import Text

    return Text(text, style)
