"""Follows a task group to its end: progress, then a summary, failures by reason, and an exit status.

`mitosis run` and `mitosis watch` share this. Nothing here changes the group.
"""

import asyncio
import shutil
from collections.abc import AsyncIterator
from uuid import UUID

from mitosis.cli.follow.display import Display, Progress, now, short_span
from mitosis.cli.follow.exit_statuses import MEANING, RunExit
from mitosis.cli.follow.failures import Failures, table
from mitosis.cli.group.view import failing_host_text, hint_of_hook
from mitosis.cli.outages import Outages
from mitosis.client.client import Client
from mitosis.concurrency import cancel_and_wait
from mitosis.contracts.errors import MitosisError
from mitosis.contracts.http import WAITING_SETUP_FAILED, TaskGroupInfo
from mitosis.contracts.lifecycle import TaskGroupResult

DETACH_HINT = "Ctrl-C: stop watching (tasks keep running)"
TICK_SECONDS = 1.0
TOO_MANY_FAILED = "too many tasks failed"
"""The reason, stored with the group, for which a run cancels its own group."""


class Follower:
    """Shows one task group on one display."""

    def __init__(
        self,
        client: Client,
        display: Display,
        hint: str = DETACH_HINT,
        failures: Failures | None = None,
        outages: Outages | None = None,
    ) -> None:
        """``failures`` are shown while the group runs; the caller keeps adding to them.

        ``outages``: those that other calls of the command meet too.
        """
        self._client = client
        self._display = display
        self._failures = failures
        self._outages = outages or Outages(display.say)
        self.hint = hint
        """The last of the live lines."""
        self.ends_as: RunExit | None = None
        """The status of a run that ends its group itself; it replaces the group's."""

    async def until_settled(self, group: UUID) -> AsyncIterator[TaskGroupInfo]:
        """Yield and show the group now and after each change, until it is settled."""
        ticking = asyncio.create_task(self._tick())
        try:
            async for info in self._changes(group):
                yield info
        finally:
            await cancel_and_wait(ticking)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_SECONDS)
            self._display.tick()

    async def _changes(self, group: UUID) -> AsyncIterator[TaskGroupInfo]:
        async for event in self._client.events(group, results=False, on_outage=self._outage):
            self._outages.over()
            if event.group is not None and event.kind == "group":
                failed = self._failures.in_one_line() if self._failures else ""
                self._display.show(Progress(event.group, now(), self.hint, failed))
                yield event.group

    def _outage(self, error: MitosisError) -> None:
        self._outages.failed(error.message)

    def conclude(
        self, group: TaskGroupInfo, failures: Failures, *, missing: bool = False
    ) -> RunExit:
        """Print how the settled group ended and return the exit status.

        ``missing``: a part of the output could not be written, so the status is not 0.
        """
        self._display.clear()
        self._display.say(_summary(group))
        status = run_exit_of(group) if self.ends_as is None else self.ends_as
        if missing and status is RunExit.OK:
            status = RunExit.OUTPUT_LOST
        if rows := failures.rows():
            for line in ["", *table(rows, shutil.get_terminal_size((100, 24)).columns), ""]:
                self._display.say(line)
            if text := failing_host_text(group):
                self._display.say(f" {text}")
            self._display.say(
                f" show the output of one: mitosis logs {group.name}/{rows[0].tasks[0]} --stderr"
            )
            self._display.say(f" run all of them again: mitosis retry {group.name}")
        if status is not RunExit.OK:
            self._display.say(f" exit status {status:d} ({reason_of(status, group)})")
        if status is RunExit.COULD_NOT_RUN:
            self._show_hooks(group)
        return status

    def _show_hooks(self, group: TaskGroupInfo) -> None:
        for run in group.hook_runs:
            if run.state == "failed":
                tail = (run.stderr_tail or run.stdout_tail or "").strip()
                self._display.say(f" {run.kind} failed on {run.manager_name}: {run.message}")
                if tail:
                    self._display.say(f"   {tail.splitlines()[-1]}")
                if hint := hint_of_hook(group, run):
                    self._display.say(f"   {hint}")


def reason_of(status: RunExit, group: TaskGroupInfo) -> str:
    """Return the reason of an exit status, with the detail that the group gives."""
    if status is not RunExit.COULD_NOT_RUN:
        return MEANING[status]
    if group.result is TaskGroupResult.TEARDOWN_DEGRADED:
        return "all tasks succeeded, but a host could not be cleaned"
    if (group.reason or "").startswith(TOO_MANY_FAILED):
        return "--max-fail: too many tasks failed, the rest was cancelled"
    return "the setup hook failed on every host that may run it"


def run_exit_of(group: TaskGroupInfo) -> RunExit:
    """Return the exit status of a settled group."""
    match group.result:
        case TaskGroupResult.SUCCESS:
            return RunExit.OK
        case TaskGroupResult.SETUP_FAILED | TaskGroupResult.TEARDOWN_DEGRADED:
            return RunExit.COULD_NOT_RUN
        case TaskGroupResult.TASKS_FAILED:
            return RunExit.TASKS_FAILED
        case TaskGroupResult.CANCELLED | None:
            ours = (group.reason or "").startswith((WAITING_SETUP_FAILED, TOO_MANY_FAILED))
            return RunExit.COULD_NOT_RUN if ours else RunExit.CANCELLED


def _summary(group: TaskGroupInfo) -> str:
    took = (group.settled_at or now()) - group.created_at
    return (
        f"{group.name} finished in {short_span(round(took.total_seconds()))}:"
        f" {group.tasks_succeeded} ok, {group.tasks_failed} failed,"
        f" {group.tasks_cancelled} cancelled"
    )
