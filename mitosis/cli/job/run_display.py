"""Shows the progress of a run: a live tree on a terminal, otherwise plain lines as steps change.

Like the display of a task group it writes on standard error, and without control characters unless that is
a capable terminal.
"""

import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Protocol, TextIO

from mitosis.cli.follow.display import (
    PLAIN_EVERY_SECONDS,
    LiveLines,
    StayingLines,
    Style,
    chosen_style,
    now,
)
from mitosis.cli.job.run_tree import Rates, headline, job_text, step_text, tree_lines
from mitosis.cli.rendering import one_line
from mitosis.contracts.lifecycle import StepState
from mitosis.contracts.runs import RunView, StepInfo


class RunDisplay(Protocol):
    def show(self, run: RunView) -> None:
        """Show the run as it is now."""
        ...

    def tick(self) -> None:
        """Show the time that has passed; called every second."""
        ...

    def say(self, text: str) -> None:
        """Print a line that stays."""
        ...

    def clear(self) -> None:
        """Erase the live lines before other output."""
        ...


class NoRunDisplay(StayingLines):
    """No progress, only lines that stay."""

    def show(self, run: RunView) -> None:
        """Show nothing."""

    def tick(self) -> None:
        """Show nothing."""


class PlainRunDisplay(StayingLines):
    """One line for each step that changes its state; the counts of the run every ten seconds."""

    def __init__(
        self,
        stream: TextIO,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], datetime] = now,
    ) -> None:
        super().__init__(stream)
        self._clock, self._wall = clock, wall
        self._last = clock()
        self._rates = Rates()
        self._run: RunView | None = None

    def show(self, run: RunView) -> None:
        before, self._run = self._run, run
        at = self._wall()
        self._rates.add(run, at)
        for line in changes(before, run, self._rates, at):
            self.say(f"{at.astimezone():%H:%M:%S} {line}")
        self.tick()

    def tick(self) -> None:
        if self._run is not None and self._clock() - self._last >= PLAIN_EVERY_SECONDS:
            self._last, at = self._clock(), self._wall()
            self.say(f"{at.astimezone():%H:%M:%S} {counts_line(self._run)}")


class LiveRunDisplay(LiveLines):
    """The tree of the run, drawn again with each change and each second."""

    def __init__(self, stream: TextIO, wall: Callable[[], datetime] = now) -> None:
        super().__init__(stream)
        self._wall = wall
        self._rates = Rates()
        self._run: RunView | None = None

    def show(self, run: RunView) -> None:
        self._run = run
        self._rates.add(run, self._wall())
        self.tick()

    def tick(self) -> None:
        if self._run is None:
            return
        size, at = shutil.get_terminal_size(), self._wall()
        lines = [
            headline(self._run, at),
            *tree_lines(self._run, self._rates, at, room=max(1, size.lines - 2)),
        ]
        self.overwrite([cut(line, size.columns - 1) for line in lines])


def choose_run_display(style: Style, stream: TextIO | None = None) -> RunDisplay:
    """Return the display for this stream; ``auto`` is live only on a capable terminal."""
    out = sys.stderr if stream is None else stream
    match chosen_style(style, out):
        case "none":
            return NoRunDisplay(out)
        case "rich":
            return LiveRunDisplay(out)
    return PlainRunDisplay(out)


def changes(before: RunView | None, run: RunView, rates: Rates, at: datetime) -> Iterator[str]:
    """Yield a line for the run and for each step whose state has changed.

    The first view of a run shows the steps that have begun.
    """
    if before is None or before.state != run.state:
        yield f"{one_line(job_text(run))}: {run.state}"
    steps = {one.name: one for one in run.steps}
    states = {one.name: one.state for one in before.steps} if before else {}
    for step in run.steps:
        if step.state != states.get(step.name, StepState.WAITING):
            yield f"{step.name}: {_change_text(step, steps, rates, at)}"


def _change_text(step: StepInfo, steps: Mapping[str, StepInfo], rates: Rates, at: datetime) -> str:
    if step.state is not StepState.RUNNING:
        return step_text(step, steps, rates, at)
    return f"running, {step.total} tasks" if step.is_array and step.total is not None else "running"


def counts_line(run: RunView) -> str:
    """Return the counts as in ``pipeline steps=2/5 ok=87 fail=3 open=110``."""
    parts = [
        one_line(job_text(run)),
        f"steps={run.steps_ended}/{run.steps_total}",
        f"ok={run.tasks_succeeded}",
        f"fail={run.tasks_failed}",
        f"cancelled={run.tasks_cancelled}" if run.tasks_cancelled else "",
        f"open={run.tasks_open}",
    ]
    return " ".join(part for part in parts if part)


def cut(line: str, width: int) -> str:
    """Return as much of the line as fits into this number of cells."""
    if len(line) <= width // 2:  # no character has more than two cells
        return line
    from rich.cells import set_cell_size

    return set_cell_size(line, width).rstrip()
