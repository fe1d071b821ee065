"""The three forms of output, and that text of strangers cannot steer a terminal."""

import io
import json
import re
from datetime import timedelta

import pytest

from mitosis.cli.rendering import (
    Item,
    JsonOutput,
    QuietOutput,
    Table,
    TerminalOutput,
    TextOutput,
    choose_output,
    printable,
    span_text,
)

ITEM = Item({"name": "ü", "n": 1}, [("name", "ü"), ("long label", "two\nlines")], "id-1")
TABLE = Table(
    data=[{"n": 1}, {"n": 2}],
    columns=("name", "n"),
    rows=[("first", "1"), ("x", "2")],
    ids=["id-1", "id-2"],
    empty="nothing here",
)
NOTHING = Table(data=[], columns=("name",), rows=[], ids=[], empty="nothing here")


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_json_is_one_document_and_notes_do_not_disturb_it() -> None:
    out = io.StringIO()
    output = JsonOutput(out)
    output.note("done")
    output.item(ITEM)
    assert json.loads(out.getvalue()) == {"name": "ü", "n": 1}
    assert "ü" in out.getvalue()


def test_quiet_is_ids_only() -> None:
    out = io.StringIO()
    output = QuietOutput(out)
    output.note("done")
    output.item(ITEM)
    output.table(TABLE)
    output.table(NOTHING)
    assert out.getvalue() == "id-1\nid-1\nid-2\n"


def test_plain_text_is_aligned() -> None:
    out = io.StringIO()
    output = TextOutput(out)
    output.item(ITEM)
    output.table(TABLE)
    output.table(NOTHING)
    assert out.getvalue().splitlines() == [
        "name        ü",
        "long label  two",
        "            lines",
        "name   n",
        "first  1",
        "x      2",
        "nothing here",
    ]


@pytest.mark.parametrize("kind", [TextOutput, TerminalOutput])
def test_control_characters_of_a_task_reach_no_terminal(kind: type[TextOutput]) -> None:
    out = Screen()
    evil = "\x1b]0;owned\x07 [red]not markup[/red]"
    output = kind(out)
    output.item(Item({}, [("stdout", evil)], ""))
    output.table(Table([], ("stdout",), [(evil,)], [""], ""))
    assert "\x1b]0;owned" not in out.getvalue()
    assert "\x07" not in out.getvalue()
    assert out.getvalue().count("\\x1b]0;owned\\x07 [red]not markup[/red]") == 2


GROUPS = Table(
    data=[],
    columns=("group", "state", "completed", "created", "id"),
    rows=[
        (f"admin/{name}", state, "8/8", "2026-11-28 10:00:00", f"0190aaaa-bbbb-cccc-dddd-{n:012}")
        for n, (name, state) in enumerate(
            [("hello", "complete, settled: tasks_failed"), ("日本", "open")]
        )
    ],
    ids=[],
    empty="",
)


@pytest.mark.parametrize("columns", [44, 60, 80, 100, 200])
def test_no_id_and_no_word_is_broken_however_narrow_the_terminal(
    columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    out = Screen()
    TerminalOutput(out).table(GROUPS)
    shown = re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue())
    assert all(text in shown for row in GROUPS.rows for text in row)
    assert max(map(len, shown.splitlines())) <= columns
    assert (len(shown.splitlines()) == 1 + len(GROUPS.rows)) is (columns == 200)


def test_what_does_not_fit_beside_stands_below_its_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    out = Screen()
    TerminalOutput(out).table(GROUPS)
    assert re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue()).splitlines()[:3] == [
        "group        state                            completed  created",
        "admin/hello  complete, settled: tasks_failed  8/8        2026-11-28 10:00:00",
        "  id 0190aaaa-bbbb-cccc-dddd-000000000000",
    ]


@pytest.mark.parametrize("columns", [30, 50, 60, 80])
def test_no_word_of_an_item_is_broken(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("NO_COLOR", "1")
    out = Screen()
    key = "0190aaaa-bbbb-cccc-dddd-000000000001"
    text = "first 日本 line of what was written\n\nlast"
    TerminalOutput(out).item(
        Item({}, [("id", key), ("last submission", f"task-group/{key}"), ("stdout", text)], "")
    )
    shown = re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue())
    assert f"task-group/{key}" in shown
    words = ["id", key, "last", "submission", f"task-group/{key}", "stdout", *text.split()]
    assert shown.split() == words
    assert f"id{' ' * 15}{key}\n" in shown or columns < 53


def test_only_sentences_are_broken_and_only_between_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    out = Screen()
    found = "the limit of open files is too low for this many cores"
    rows = [("warn", "file-limits-of-this-machine", found)]
    TerminalOutput(out).table(Table([], ("", "check", "found"), rows, [], "", prose="found"))
    shown = out.getvalue().split()
    assert [word for word in found.split() if word in shown] == found.split()
    assert "file-limits-of-this-machine" in shown


def test_printable_keeps_lines_and_letters() -> None:
    assert printable("é\tß\n\r\x00") == "é\tß\n\\x0d\\x00"


def test_the_stream_decides_between_plain_and_terminal() -> None:
    assert type(choose_output(as_json=False, quiet=False, stream=io.StringIO())) is TextOutput
    assert type(choose_output(as_json=False, quiet=False, stream=Screen())) is TerminalOutput
    assert type(choose_output(as_json=True, quiet=True, stream=Screen())) is JsonOutput
    assert type(choose_output(as_json=False, quiet=True, stream=Screen())) is QuietOutput


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.1234, "0.123s"), (59.9, "59.9s"), (61, "1m1s"), (3600, "1h"), (93_784, "1d2h")],
)
def test_spans_are_short(seconds: float, text: str) -> None:
    assert span_text(timedelta(seconds=seconds)) == text


@pytest.mark.parametrize("kind", [TextOutput, TerminalOutput])
def test_notes_show_control_and_bidi_characters_escaped(kind: type[TextOutput]) -> None:
    screen = Screen()
    output = kind(screen)
    output.note("steps:\n\tdescription: \x1b]0;title\x07 \u202ereversed \x9b2J")
    for char in "\x1b\x07\u202e\x9b":
        assert char not in screen.getvalue()
    assert "steps:\n" in screen.getvalue()
    assert "\\x202e" in screen.getvalue()
