"""`mitosis logs`: prints the stored output of tasks and hooks, the tail of each stream; live with -f.

Live output is fetched from the host while a client follows it; it is not stored.
"""

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Literal
from uuid import UUID

import typer

from mitosis.cli import plain_app
from mitosis.cli.arguments import TargetArgument
from mitosis.cli.context import Cli
from mitosis.cli.exit import ExitStatus
from mitosis.cli.registration import register
from mitosis.cli.rendering import Table, printable
from mitosis.cli.task.find import split_target, task_of_group
from mitosis.cli.task.view import ending_text
from mitosis.contracts.errors import InvalidRequest
from mitosis.contracts.lifecycle import TASK, TaskState
from mitosis.contracts.task_output import exact_form, kept_bytes

if TYPE_CHECKING:
    from mitosis.client.sync import SyncClient
    from mitosis.contracts.http import HookRunInfo, TaskGroupInfo, TaskInfo

app = plain_app()
GIVE_UP_AFTER = timedelta(minutes=10)
"""The longest outage of the API that following bridges; tasks keep running."""
MOST_NAMED = 10
Stream = Literal["stdout", "stderr"]


@dataclass(frozen=True, slots=True)
class Log:
    """The stored tail of one stream of one task or hook."""

    source: str
    stream: Stream
    data: bytes
    total_bytes: int | None
    """Number of bytes written; None where the text itself marks what is missing."""

    @property
    def cut(self) -> bool:
        return self.total_bytes is not None and self.total_bytes > len(self.data)

    @property
    def text(self) -> str:
        """The data as text, for JSON and terminals; U+FFFD replaces what is not UTF-8."""
        return self.data.decode(errors="replace")

    @property
    def missing(self) -> int:
        return self.total_bytes - len(self.data) if self.cut and self.total_bytes else 0

    def as_json(self) -> dict[str, object]:
        """Return the log as a document; ``base64`` has the bytes if the text is not exact."""
        return {
            "source": self.source,
            "stream": self.stream,
            "text": self.text,
            "base64": exact_form(self.data, self.text),
            "total_bytes": self.total_bytes,
            "cut": self.cut,
        }

    def heading(self) -> str:
        """Return ``==> task 7, failed, exit 3: stderr (the last 65536 of 70000 bytes) <==``."""
        note = f" (the last {len(self.data)} of {self.total_bytes} bytes)" if self.cut else ""
        return f"==> {self.source}: {self.stream}{note} <=="


class _Printer:
    """Prints output unchanged on standard output and headings on standard error; or one JSON list."""

    def __init__(self, cli: Cli) -> None:
        self._cli = cli
        self._found: list[Log] = []
        self._missing: list[Log] = []

    def print(self, logs: Iterable[Log]) -> None:
        for log in logs:
            if log.missing:
                self._missing.append(log)
            if self._cli.as_json:
                self._found.append(log)
                continue
            typer.echo(log.heading(), err=True)
            sys.stdout.flush()
            data = log.data
            if sys.stdout.isatty():
                data = printable(log.text).encode()
                data += b"" if data.endswith(b"\n") else b"\n"
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()

    def finish(self) -> ExitStatus:
        """Print the list of --json; return the exit status, which is not 0 if output was cut."""
        if self._cli.as_json:
            data = [log.as_json() for log in self._found]
            self._cli.output.table(Table(data, (), (), (), ""))
        for log in self._missing[:MOST_NAMED]:
            self._cli.hint(
                f"{log.source}: the first {log.missing} bytes of {log.stream} are missing"
            )
        if len(self._missing) > MOST_NAMED:
            self._cli.hint(f"and {len(self._missing) - MOST_NAMED} more outputs are cut")
        return ExitStatus.OUTPUT_LOST if self._missing else ExitStatus.OK


@register(app, "logs")
def logs(
    cli: Cli,
    target: TargetArgument,
    stdout: Annotated[bool, typer.Option("--stdout", help="Only standard output.")] = False,
    stderr: Annotated[bool, typer.Option("--stderr", help="Only standard error.")] = False,
    failed: Annotated[bool, typer.Option("--failed", help="Only tasks that failed.")] = False,
    hook: Annotated[
        Literal["setup", "teardown"] | None,
        typer.Option(help="The output of this hook on every host."),
    ] = None,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow", "-f", help="Follow the output of running tasks until all have ended."
        ),
    ] = False,
) -> int:
    """Print the output of tasks, one after the other; with -f, print it live until they end.

    The tail of each stream is stored; a heading on standard error says when it is not the whole output, and
    then the exit status is 74. Nothing is added to the output, not even a newline at its end.
    Following one task prints its bytes unchanged, beginning with the tail of its output so far. Following
    a task group prints whole lines after the number of the task (`17| out`, `17! err`). If a task writes
    faster than it can be followed, the gap is marked [… N bytes skipped]. With --json, -f prints one event
    per line, `data` in base64.
    """
    streams: tuple[Stream, ...] = ("stdout", "stderr")
    if stdout != stderr:
        streams = ("stdout",) if stdout else ("stderr",)
    group, number = split_target(target)
    if hook is not None and (number is not None or failed or follow):
        raise InvalidRequest(
            "needs a task group without a task, and no other selection", option="--hook"
        )
    if number is not None and failed:
        raise InvalidRequest("needs a task group without a task", option="--failed")
    printer = _Printer(cli)
    try:
        with cli.client() as client:
            if follow:
                return _follow(cli, client, group, number, streams, only_failed=failed)
            if hook is not None:
                printer.print(of_hooks(client.group(group), hook, streams))
            elif number is not None:
                _one_task(cli, task_of_group(client, group, number), streams, printer)
            else:
                _all_tasks(cli, client, group, streams, printer, failed=failed)
    except KeyboardInterrupt:
        return ExitStatus.INTERRUPTED
    return printer.finish()


def of_task(task: "TaskInfo", streams: Iterable[Stream]) -> Iterator[Log]:
    """Yield the stored output of one task, without empty streams."""
    detail = task.detail or {}
    how = ", ".join(filter(None, [str(task.state), ending_text(task)]))
    for stream in streams:
        data, total = kept_bytes(detail, stream), detail.get(f"{stream}_bytes")
        if data or total:
            yield Log(
                f"task {task.task_id}, {how}",
                stream,
                data,
                total if isinstance(total, int) else None,
            )


def of_hooks(group: "TaskGroupInfo", kind: str, streams: Iterable[Stream]) -> Iterator[Log]:
    """Yield the stored output of the runs of one hook; its first line says if it was cut."""
    for run in group.hook_runs:
        if run.kind != kind:
            continue
        for stream in streams:
            data = _tail(run, stream).encode()
            if data:
                yield Log(f"{run.kind} on {run.manager_name}, {run.state}", stream, data, None)


def _tail(run: "HookRunInfo", stream: Stream) -> str:
    return (run.stdout_tail if stream == "stdout" else run.stderr_tail) or ""


def _one_task(cli: Cli, task: "TaskInfo", streams: tuple[Stream, ...], printer: "_Printer") -> None:
    if task.state not in TASK.terminal:
        cli.hint(
            f"task {task.task_id} is {task.state}: follow its output with -f; it is stored when the task ends"
        )
    printer.print(of_task(task, streams))


def _all_tasks(
    cli: Cli,
    client: "SyncClient",
    group: str,
    streams: tuple[Stream, ...],
    printer: "_Printer",
    *,
    failed: bool,
) -> None:
    info = client.group(group)
    for task in client.tasks(group):
        if not failed or task.state is TaskState.FAILED:
            printer.print(of_task(task, streams))
    if info.tasks_unfinished:
        cli.hint(f"{info.tasks_unfinished} tasks have not ended: follow their output with -f")


def _follow(
    cli: Cli,
    client: "SyncClient",
    group: str,
    number: int | UUID | None,
    streams: tuple[Stream, ...],
    *,
    only_failed: bool,
) -> ExitStatus:
    """Print live output until the task or the group has ended; not status 0 if bytes were skipped."""
    from mitosis.cli.logs.live_output import ManyTasks, OneTask, StandardOutput

    if number is None:
        events = client.group_output(group, patience=GIVE_UP_AFTER)
        show = ManyTasks(StandardOutput(), streams, only_failed=only_failed).show
    else:
        task = task_of_group(client, group, number)
        events = client.task_output(task.task_uuid, patience=GIVE_UP_AFTER)
        show = OneTask(StandardOutput(), streams).show
    skipped = 0
    for event in events:
        if event.stream in streams:
            skipped += event.skipped or 0
        if cli.as_json:
            sys.stdout.write(event.text() + "\n")
            sys.stdout.flush()
        else:
            show(event)
    if not skipped:
        return ExitStatus.OK
    cli.hint(f"{skipped} bytes of output were skipped, where it is marked")
    return ExitStatus.OUTPUT_LOST
