"""Shows the progress of a task group: live lines on a terminal, otherwise a plain line every ten seconds.

Progress is printed on standard error; standard output is for the output of tasks. There are no control
characters if standard error is not a terminal, with NO_COLOR or TERM=dumb, or in CI.
"""

import os
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, Protocol, TextIO

from mitosis.cli.rendering import printable
from mitosis.contracts.http import TaskGroupInfo
from mitosis.contracts.lifecycle import TaskGroupState

Style = Literal["auto", "rich", "plain", "none"]
PLAIN_EVERY_SECONDS = 10.0
LIVE_EVERY_SECONDS = 0.25
WIDE = 119
"""From this number of columns on, more is shown."""


@dataclass(frozen=True, slots=True)
class Progress:
    """The state of a task group at one moment."""

    group: TaskGroupInfo
    now: datetime
    hint: str = ""
    failed: str = ""
    """The reasons of the failures so far, in one line."""

    @property
    def input_open(self) -> bool:
        """Whether more tasks may come, so that the total is unknown."""
        return self.group.state is TaskGroupState.OPEN

    @property
    def done(self) -> int:
        return self.group.tasks_completed

    @property
    def running(self) -> int:
        return self.group.tasks_running or 0

    @property
    def ready(self) -> int:
        return max(0, self.group.tasks_unfinished - self.running)

    @property
    def fraction(self) -> float:
        return self.done / self.group.tasks_total if self.group.tasks_total else 0.0

    def percent_text(self) -> str:
        """Return the share of *finished* tasks; while inputs may come, of those known so far."""
        if self.input_open:
            return f"{self.done} of {self.group.tasks_total} or more"
        return f"{100 * self.fraction:.1f} %"

    def rate_text(self) -> str:
        rate = self.group.tasks_per_second
        return f"{rate:.3g}/s" if rate else ""

    def left_text(self) -> str:
        """Return the time left; with the clock time if it is more than an hour."""
        at = self.group.estimated_completion_at
        if at is None or self.input_open or self.group.tasks_unfinished == 0:
            return ""
        left = max(0, round((at - self.now).total_seconds()))
        text = short_span(left)
        return f"{text} (at {at.astimezone():%H:%M})" if left > 3600 else text


def short_span(seconds: int) -> str:
    """Return a duration of fixed width units, as in ``1h05m``, ``3m09s`` or ``7s``."""
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes:02}m"
    return f"{minutes}m{seconds:02}s" if minutes else f"{seconds}s"


def plain_line(progress: Progress) -> str:
    """Return a line as ``22:04:10 name 60.9% ok=6074 fail=14 run=192 ready=3720 31.4/s eta=1m50s``."""
    group = progress.group
    percent = (
        f">={progress.done}/{group.tasks_total}"
        if progress.input_open
        else f"{100 * progress.fraction:.1f}%"
    )
    parts = [
        f"{progress.now.astimezone():%H:%M:%S}",
        group.name,
        percent,
        f"ok={group.tasks_succeeded}",
        f"fail={group.tasks_failed}",
        f"cancelled={group.tasks_cancelled}" if group.tasks_cancelled else "",
        f"run={progress.running}",
        f"ready={progress.ready}",
        progress.rate_text(),
        f"eta={progress.left_text()}" if progress.left_text() else "",
        f"({group.waiting_for})" if group.waiting_for else "",
    ]
    return " ".join(part for part in parts if part)


def live_lines(progress: Progress, width: int) -> list[str]:
    """Return three to five lines that fit into ``width`` columns."""
    group = progress.group
    hosts = ", ".join(sorted({lease.manager_name for lease in group.leases})) or "no host yet"
    wide = width >= WIDE
    tail = f" {progress.percent_text()}"
    if rate := progress.rate_text():
        tail += f"  {rate}"
    if left := progress.left_text():
        tail += f"  done in {left}"
    counts = (
        f" ok {group.tasks_succeeded}   failed {group.tasks_failed}"
        + (f"   cancelled {group.tasks_cancelled}" if group.tasks_cancelled else "")
        + f"   running {progress.running}   ready {progress.ready}"
    )
    if wide:
        elapsed = short_span(max(0, round((progress.now - group.created_at).total_seconds())))
        workers = group.worker_allocation_plan.worker_count
        counts += f"   elapsed {elapsed}   workers {workers} per host   priority {group.priority}"
    lines = [f"{group.name}  on {hosts}", f" {bar(progress, width - len(tail) - 2)}{tail}", counts]
    if group.waiting_for:
        lines.append(f" {group.waiting_for}")
    if progress.failed:
        lines.append(f" failed: {progress.failed}")
    if progress.hint:
        lines.append(f" {progress.hint}" + (f"   logs: mitosis logs {group.name}" if wide else ""))
    return [line[:width] for line in lines]


def bar(progress: Progress, width: int) -> str:
    """Return a bar of finished, failed, running and waiting tasks, ``width`` cells long."""
    width = max(10, min(width, 72))
    total = max(1, progress.group.tasks_total)
    failed = _share(progress.group.tasks_failed, total, width)
    done = min(_share(progress.done, total, width), width)
    running = min(_share(progress.running, total, width), width - done)
    ok = max(0, done - failed)
    return "█" * ok + "✗" * (done - ok) + "▓" * running + "░" * (width - done - running)


def _share(part: int, total: int, width: int) -> int:
    """Return the number of cells for ``part``; at least one unless it is zero."""
    return max(1, width * part // total) if part else 0


class Display(Protocol):
    def show(self, progress: Progress) -> None: ...

    def tick(self) -> None:
        """Show what :meth:`show` has held back, if its time has come; called every second."""

    def say(self, text: str) -> None:
        """Print a line that stays."""
        ...

    def clear(self) -> None:
        """Erase the live lines before other output."""
        ...


class StayingLines:
    """Lines that stay on a stream."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def say(self, text: str) -> None:
        shown = printable(text) if self._stream.isatty() else text
        with suppress(OSError):  # the terminal or the reader is gone
            self._stream.write(f"{shown}\n")
            self._stream.flush()

    def clear(self) -> None:
        """Clear nothing: there are no live lines."""


class NoDisplay(StayingLines):
    """No progress, only lines that stay."""

    def show(self, progress: Progress) -> None:
        """Show nothing."""

    def tick(self) -> None:
        """Show nothing."""


class PlainDisplay(StayingLines):
    """One line at each change of state and when tasks begin to run, otherwise at most one in ten seconds.

    A snapshot that comes earlier is shown by :meth:`tick` when its time has come, so that the last line is
    never older than that.
    """

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(stream)
        self._clock = clock
        self._last = -PLAIN_EVERY_SECONDS
        self._state: tuple[object, ...] = ()
        self._waiting: Progress | None = None

    def show(self, progress: Progress) -> None:
        group = progress.group
        over = group.tasks_unfinished == 0 and not progress.input_open
        # no extra line just because the last task ended
        state = (group.state, None if over else group.waiting_for, progress.running > 0 or over)
        if state == self._state and self._clock() - self._last < PLAIN_EVERY_SECONDS:
            self._waiting = progress
            return
        self._state, self._last, self._waiting = state, self._clock(), None
        self.say(plain_line(progress))

    def tick(self) -> None:
        if self._waiting is not None and self._clock() - self._last >= PLAIN_EVERY_SECONDS:
            self.show(self._waiting)


class LiveLines(StayingLines):
    """A block of lines on a terminal that each update overwrites."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._height = 0

    def overwrite(self, lines: Sequence[str]) -> None:
        """Draw these lines, none wider or higher than the terminal, in the place of the last ones."""
        self._draw(self._erase() + "\n".join(lines) + "\n")
        self._height = len(lines)

    def say(self, text: str) -> None:
        self.clear()
        super().say(text)

    def clear(self) -> None:
        self._draw(self._erase())
        self._height = 0

    def _draw(self, text: str) -> None:
        with suppress(OSError):  # the terminal is gone
            self._stream.write(text)
            self._stream.flush()

    def _erase(self) -> str:
        return f"\033[{self._height}A\033[J" if self._height else ""


class LiveDisplay(LiveLines):
    """The live lines of a task group."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(stream)
        self._clock = clock
        self._last = -LIVE_EVERY_SECONDS
        self._waiting: Progress | None = None

    def tick(self) -> None:
        if self._waiting is not None:
            self.show(self._waiting)

    def show(self, progress: Progress) -> None:
        self._waiting = None
        if self._clock() - self._last < LIVE_EVERY_SECONDS and not progress.group.settled:
            self._waiting = progress
            return
        self._last = self._clock()
        self.overwrite(live_lines(progress, shutil.get_terminal_size().columns - 1))


def choose_display(
    style: Style, stream: TextIO = sys.stderr, environment: Mapping[str, str] = os.environ
) -> Display:
    """Return the display for this stream and environment; ``auto`` is live only on a capable terminal."""
    match chosen_style(style, stream, environment):
        case "none":
            return NoDisplay(stream)
        case "rich":
            return LiveDisplay(stream)
    return PlainDisplay(stream)


def chosen_style(
    style: Style, stream: TextIO = sys.stderr, environment: Mapping[str, str] = os.environ
) -> Style:
    """Return what ``auto`` comes to; the other styles as they are."""
    if style != "auto":
        return style
    capable = (
        stream.isatty()
        and environment.get("TERM") != "dumb"
        and not {"NO_COLOR", "CI"}.intersection(environment)
    )
    return "rich" if capable else "plain"


def now() -> datetime:
    return datetime.now(UTC)
