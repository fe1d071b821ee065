"""What commands print on standard output: a table for people, JSON for programs, or ids alone.

A command builds an :class:`Item` or a :class:`Table` and hands it over; it does not know which form
was asked for. rich is imported only when standard output is a terminal (it honours ``NO_COLOR``);
elsewhere the same table is plain text.
"""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Protocol, TextIO

SHORT = 24
"""Columns of a terminal up to this wide are not broken into lines."""


@dataclass(frozen=True, slots=True)
class Item:
    """One thing: ``data`` for JSON, ``fields`` (label, text) for people, ``id`` for scripts."""

    data: object
    fields: Sequence[tuple[str, str]]
    id: str


@dataclass(frozen=True, slots=True)
class Table:
    """Many things: ``data`` for JSON, ``rows`` below ``columns`` for people, ``ids`` for scripts."""

    data: object
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    ids: Sequence[str]
    empty: str
    """What people read when there is no row."""


class Output(Protocol):
    def item(self, item: Item) -> None: ...

    def table(self, table: Table) -> None: ...

    def note(self, text: str) -> None:
        """Something for people only: what was done, what to do next."""
        ...


class JsonOutput:
    """One JSON document on standard output, nothing else."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def item(self, item: Item) -> None:
        self._write(item.data)

    def table(self, table: Table) -> None:
        self._write(table.data)

    def note(self, text: str) -> None:
        """Not JSON, so not here."""

    def _write(self, data: object) -> None:
        self._stream.write(json.dumps(data, indent=2, ensure_ascii=False) + "\n")


class QuietOutput:
    """One id a line."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def item(self, item: Item) -> None:
        self._stream.write(f"{item.id}\n")

    def table(self, table: Table) -> None:
        self._stream.writelines(f"{one}\n" for one in table.ids)

    def note(self, text: str) -> None:
        """Not an id, so not here."""


class TextOutput:
    """Aligned plain text: a pipe, a file, a log."""

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
        self._line(text)

    def _line(self, text: str) -> None:
        self._stream.write(text.rstrip() + "\n")


class TerminalOutput(TextOutput):
    """As plain text, in the width and with the colours of a terminal."""

    def item(self, item: Item) -> None:
        from rich.table import Table as Grid

        grid = Grid.grid(padding=(0, 2))
        grid.add_column(style="dim", no_wrap=True)
        grid.add_column(overflow="fold")
        for label, text in item.fields:
            grid.add_row(_plain(label), _plain(printable(text)))
        self._print(grid)

    def table(self, table: Table) -> None:
        from rich.table import Table as Grid

        if not table.rows:
            self._line(table.empty)
            return
        grid = Grid(box=None, pad_edge=False, header_style="bold")
        for column, *cells in zip(table.columns, *table.rows, strict=True):
            short = max(map(len, cells)) <= SHORT
            grid.add_column(column, overflow="fold", no_wrap=short)
        for row in table.rows:
            grid.add_row(*(_plain(one_line(text)) for text in row))
        self._print(grid)

    def _print(self, grid: Any) -> None:
        from rich.console import Console

        Console(file=self._stream, highlight=False).print(grid)


def choose_output(*, as_json: bool, quiet: bool, stream: TextIO | None = None) -> Output:
    """The output that the options and the stream (standard output) ask for."""
    out = stream or sys.stdout
    if as_json:
        return JsonOutput(out)
    if quiet:
        return QuietOutput(out)
    return TerminalOutput(out) if out.isatty() else TextOutput(out)


def printable(text: str) -> str:
    """Text of strangers without control characters: output of a task must not steer a terminal."""
    return "".join(
        char if char in "\n\t" or char.isprintable() else f"\\x{ord(char):02x}" for char in text
    )


def one_line(text: str) -> str:
    return printable(text).replace("\n", "⏎").replace("\t", " ")


def time_text(moment: datetime | None) -> str:
    """Local time to the second; empty for None."""
    return "" if moment is None else moment.astimezone().strftime("%Y-%m-%d %H:%M:%S")


def span_text(span: timedelta | float | None) -> str:
    """``1d2h``, ``3m20s``, ``12.3s``; empty for None."""
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
    """The time between; empty while there is none."""
    return span_text(end - start) if start and end else ""


def _plain(text: str) -> Any:
    from rich.text import Text

    return Text(text)
