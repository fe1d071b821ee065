"""The display of a run: a tree that fits the terminal, or lines for what has changed."""

import io
import os
import re
import shutil
from datetime import datetime, timedelta

import pytest
from rich.cells import cell_len

from mitosis.cli.job.run_display import (
    LiveRunDisplay,
    NoRunDisplay,
    PlainRunDisplay,
    choose_run_display,
    cut,
)
from mitosis.contracts.runs import RunView
from tests.support.run_views import NOON, run_view, step


class Time:
    """Both clocks of a display; a test moves them."""

    seconds = 0.0

    def clock(self) -> float:
        return self.seconds

    def wall(self) -> datetime:
        return NOON + timedelta(seconds=self.seconds)


def running(prepare: str = "running", merge: str = "waiting", **facts: object) -> RunView:
    return run_view(
        step("prepare", prepare, started_at=NOON),
        step("merge", merge, after=["prepare"], layer=1, is_array=True, total=9),
        tasks_open=1,
        **facts,
    )


def said(stream: io.StringIO) -> list[str]:
    """The lines without the time of day."""
    return [re.sub(r"^\d\d:\d\d:\d\d ", "", line) for line in stream.getvalue().splitlines()]


def test_without_a_terminal_each_change_of_a_step_is_one_line() -> None:
    time, stream = Time(), io.StringIO()
    display = PlainRunDisplay(stream, time.clock, time.wall)
    display.show(running())
    display.show(running())
    time.seconds = 3.0
    display.show(running("succeeded", "running"))
    display.show(running("succeeded", "failed", state="failed"))
    assert said(stream) == [
        "pipeline version 3: running",
        "prepare: running",
        "prepare: succeeded 3s",
        "merge: running, 9 tasks",
        "pipeline version 3: failed",
        "merge: failed  0 of 9",
    ]
    assert "\x1b" not in stream.getvalue()


def test_without_a_terminal_the_counts_come_every_ten_seconds() -> None:
    time, stream = Time(), io.StringIO()
    display = PlainRunDisplay(stream, time.clock, time.wall)
    display.tick()
    display.show(running())
    for second in range(1, 25):
        time.seconds = second
        display.tick()
    counts = "pipeline version 3 steps=0/2 ok=0 fail=0 open=1"
    assert said(stream)[2:] == [counts, counts]


def test_the_live_tree_overwrites_itself_and_its_times_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shutil, "get_terminal_size", lambda: os.terminal_size((60, 20)))
    time, stream = Time(), io.StringIO()
    display = LiveRunDisplay(stream, time.wall)
    display.tick()
    display.show(running())
    first = stream.getvalue()
    assert first.splitlines()[1:] == ["▶ prepare   running 0s", "└─ · merge  waits for prepare"]
    time.seconds = 5.0
    display.tick()
    later = stream.getvalue().removeprefix(first)
    assert later.startswith("\033[3A\033[J")
    assert "running 5s" in later


def test_the_live_tree_is_never_wider_or_higher_than_the_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shutil, "get_terminal_size", lambda: os.terminal_size((30, 6)))
    stream = io.StringIO()
    steps = [step(f"s{at}", "failed", reason="漢字" * 40) for at in range(20)]
    LiveRunDisplay(stream, lambda: NOON).show(run_view(*steps))
    lines = stream.getvalue().splitlines()
    assert len(lines) < 6
    assert max(map(cell_len, lines)) < 30


@pytest.mark.parametrize("width", range(1, 9))
def test_a_line_is_cut_by_cells(width: int) -> None:
    assert cell_len(cut("a漢字b", width)) <= width
    assert cut("a漢字b", 6) == "a漢字b"


def test_what_controls_a_terminal_is_escaped() -> None:
    stream = io.StringIO()
    display = PlainRunDisplay(stream, wall=lambda: NOON)
    display.show(run_view(step("a", "failed", reason="\x1b[2J"), name="\x1b[H"))
    assert "\x1b" not in stream.getvalue()


def test_only_a_capable_terminal_gets_a_live_tree() -> None:
    assert isinstance(choose_run_display("auto", io.StringIO()), PlainRunDisplay)
    assert isinstance(choose_run_display("rich", io.StringIO()), LiveRunDisplay)
    assert isinstance(choose_run_display("none", io.StringIO()), NoRunDisplay)
