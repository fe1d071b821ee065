"""`mitosis group wait`: waits for the end of a task group, with one live line on a terminal.

Each request is a long poll. The first request must succeed; during a later outage of the API the
command keeps waiting, because the tasks keep running.
"""

import sys
import time
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Literal, TextIO

import typer

from mitosis.cli.arguments import GroupArgument
from mitosis.cli.context import Cli
from mitosis.cli.exit import OF_RESULT, ExitStatus
from mitosis.cli.group.view import counts_text, group_item, state_text
from mitosis.cli.outages import Outages
from mitosis.contracts.errors import Unavailable

if TYPE_CHECKING:
    from mitosis.client.sync import SyncClient
    from mitosis.contracts.http import TaskGroupInfo

Until = Literal["changed", "complete", "settled"]

LONGEST_REQUEST_SECONDS = 30.0
STALE_AFTER_SECONDS = 2.0
"""Maximum age of the live line, even if a change falls between two requests."""
RETRY_SECONDS = 1.0


class ProgressLine:
    """A line that each update overwrites; no output unless the stream is a terminal."""

    def __init__(self, stream: TextIO, *, enabled: bool) -> None:
        self._stream = stream
        self.enabled = enabled and stream.isatty()

    def show(self, text: str) -> None:
        if self.enabled:
            self._stream.write(f"\r\033[K{text}")
            self._stream.flush()

    def clear(self) -> None:
        self.show("")


def wait(
    cli: Cli,
    group: GroupArgument,
    timeout: Annotated[
        str | None, typer.Option(metavar="TIME", help="Stop waiting after this long, as in 2h.")
    ] = None,
    until: Annotated[
        Literal["settled", "complete"],
        typer.Option(help="complete: every task has ended; settled: the hosts are cleaned up too."),
    ] = "settled",
) -> int:
    """Wait until a task group has ended.

    A task group whose setup hook failed on every host keeps waiting for another host: `mitosis group
    show` shows this, and `mitosis group cancel` ends it.

    Exit status: 0 success, 10 tasks failed, 11 cancelled, 12 setup failed, 13 a host could not be
    cleaned, 124 --timeout ran out, 130 Ctrl-C. Ctrl-C only stops waiting.
    """
    from mitosis.cli.validation import seconds

    limit = seconds(timeout, "--timeout")
    deadline = None if limit is None else time.monotonic() + limit
    line = ProgressLine(sys.stderr, enabled=not cli.as_json)
    with cli.client() as client:
        try:
            last = _wait(Waiting(client, group, until, line), deadline, cli.hint)
        except KeyboardInterrupt:
            line.clear()
            cli.hint(
                f"stopped waiting; the task group continues. Wait again: mitosis group wait {group}"
            )
            return ExitStatus.INTERRUPTED
    line.clear()
    cli.output.item(group_item(last))
    if not ended(last, until):
        cli.hint(f"not {until} after {timeout}; the task group continues")
        return ExitStatus.TIMED_OUT
    return wait_exit_of(last)


def ended(group: "TaskGroupInfo", until: str) -> bool:
    """Return whether the wait is over."""
    return group.settled or (until == "complete" and group.state in ("complete", "cancelled"))


def wait_exit_of(group: "TaskGroupInfo") -> ExitStatus:
    """Return the exit status for a group that has ended; from its counts if it is not settled."""
    if group.result is not None:
        return OF_RESULT[group.result]
    if group.state == "cancelled":
        return ExitStatus.CANCELLED
    return ExitStatus.TASKS_FAILED if group.tasks_failed or group.tasks_cancelled else ExitStatus.OK


def progress_text(group: "TaskGroupInfo", now: float) -> str:
    """Return one line: name, state, counts, rate, time left, and why it waits."""
    parts = [f"{group.name}: {state_text(group)}", counts_text(group)]
    if group.tasks_per_second:
        parts.append(f"{group.tasks_per_second:.3g}/s")
    if group.estimated_completion_at is not None:
        left = max(0, round(group.estimated_completion_at.timestamp() - now))
        parts.append(f"about {left // 60}m{left % 60:02}s left")
    if group.waiting_for:
        parts.append(group.waiting_for)
    return ", ".join(parts)


class Waiting:
    """The requests of one `group wait`."""

    def __init__(self, client: "SyncClient", group: str, until: Until, line: ProgressLine) -> None:
        self._client = client
        self._group = group
        self.until = until
        self.line = line

    def now(self) -> "TaskGroupInfo":
        return self._client.group(self._group)

    def longer(self, seconds: float) -> "TaskGroupInfo":
        """Return the group after ``seconds``, or sooner when it changes as awaited."""
        until = self.until
        if self.line.enabled:
            until, seconds = "changed", min(seconds, STALE_AFTER_SECONDS)
        return self._client.wait(self._group, until=until, timeout=timedelta(seconds=seconds))


def _wait(waiting: Waiting, deadline: float | None, hint: Callable[[str], None]) -> "TaskGroupInfo":
    group = waiting.now()
    outages = Outages(lambda text: None if waiting.line.enabled else hint(text))
    if group.state == "open" and group.auto_close_timeout is None and not waiting.line.enabled:
        hint(f"the task group is open; it can end after: mitosis group close {group.name}")
    while not ended(group, waiting.until):
        waiting.line.show(progress_text(group, time.time()))
        left = LONGEST_REQUEST_SECONDS if deadline is None else deadline - time.monotonic()
        if left <= 0:
            break
        try:
            group = waiting.longer(min(left, LONGEST_REQUEST_SECONDS))
        except Unavailable as error:
            waiting.line.show(f"{error.message}; retrying")
            outages.failed(error.message)
            time.sleep(min(left, RETRY_SECONDS))
    return group
