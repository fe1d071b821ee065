"""`mitosis logs`: the output of tasks that have ended and of hooks, as it is kept: the end of each stream.

Of a task that still runs nothing is kept yet; that is said, not guessed.
"""

import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from mitosis.cli import plain_app
from mitosis.cli.command import Cli, check_reference, register
from mitosis.cli.exit import ExitStatus
from mitosis.cli.output import Table, printable
from mitosis.cli.task import task_of_group
from mitosis.cli.task_view import ending_text
from mitosis.contracts.errors import InvalidRequest
from mitosis.contracts.lifecycle import TASK, TaskState

if TYPE_CHECKING:
    from mitosis.client.sync import SyncClient
    from mitosis.contracts.http import HookRunInfo, TaskGroupInfo, TaskInfo

app = plain_app()
Stream = Literal["stdout", "stderr"]


@dataclass(frozen=True, slots=True)
class Log:
    """The end of one stream of one task or hook."""

    source: str
    stream: Stream
    text: str
    total_bytes: int | None
    """What was written in all; None where the text itself says what is missing."""

    @property
    def cut(self) -> bool:
        return self.total_bytes is not None and self.total_bytes > len(self.text.encode())

    def heading(self) -> str:
        """``==> task 7, failed, exit 3: stderr (the last 65536 of 70000 bytes) <==``"""
        size = len(self.text.encode())
        note = f" (the last {size} of {self.total_bytes} bytes)" if self.cut else ""
        return f"==> {self.source}: {self.stream}{note} <=="


class _Printer:
    """Output of tasks on standard output as it is, headings on standard error; or one JSON list."""

    def __init__(self, cli: Cli) -> None:
        self._cli = cli
        self._found: list[Log] = []

    def print(self, logs: Iterable[Log]) -> None:
        for log in logs:
            if self._cli.as_json:
                self._found.append(log)
                continue
            typer.echo(log.heading(), err=True)
            text = printable(log.text) if sys.stdout.isatty() else log.text
            sys.stdout.write(text if text.endswith("\n") else f"{text}\n")
            sys.stdout.flush()

    def finish(self) -> None:
        if self._cli.as_json:
            data = [asdict(log) | {"cut": log.cut} for log in self._found]
            self._cli.output.table(Table(data, (), (), (), ""))


@register(app, "logs")
def logs(
    cli: Cli,
    target: Annotated[
        str,
        typer.Argument(
            metavar="GROUP[/TASK]", help="A group, or one of its tasks by number, as in render/17."
        ),
    ],
    stdout: Annotated[bool, typer.Option("--stdout", help="Only standard output.")] = False,
    stderr: Annotated[bool, typer.Option("--stderr", help="Only standard error.")] = False,
    failed: Annotated[bool, typer.Option("--failed", help="Only tasks that failed.")] = False,
    hook: Annotated[
        Literal["setup", "teardown"] | None, typer.Option(help="Of this hook, on every host.")
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with tasks as they end, until all have.")
    ] = False,
) -> int:
    """Print what tasks have written, one after the other; with -f in the order in which they end.

    Kept is the end of each stream; the heading, which goes to standard error, says where that is not
    all. A task that still runs has nothing to show yet: its output is kept when it ends.
    """
    streams: tuple[Stream, ...] = ("stdout", "stderr")
    if stdout != stderr:
        streams = ("stdout",) if stdout else ("stderr",)
    group, number = split_target(target)
    if hook is not None and (number is not None or failed or follow):
        raise InvalidRequest("goes with a group alone", option="--hook")
    if number is not None and (failed or follow):
        raise InvalidRequest("one task has no others to choose from or to follow", option="TASK")
    printer = _Printer(cli)
    try:
        with cli.client() as client:
            if hook is not None:
                printer.print(of_hooks(client.group(group), hook, streams))
            elif number is not None:
                _one_task(cli, task_of_group(client, group, number), streams, printer)
            else:
                _all_tasks(cli, client, group, streams, printer, failed=failed, follow=follow)
    except KeyboardInterrupt:
        return ExitStatus.INTERRUPTED
    printer.finish()
    return ExitStatus.OK


def split_target(text: str) -> tuple[str, int | None]:
    """``render/17`` is a task of a group; ``team/render`` and ``team/render/17`` work as well.

    Raises:
        InvalidRequest: it names no group.
    """
    group, slash, last = text.rpartition("/")
    if slash and last.isascii() and last.isdigit():
        return check_reference(group), int(last)
    return check_reference(text), None


def of_task(task: "TaskInfo", streams: Iterable[Stream]) -> Iterator[Log]:
    """What one task has left, streams that are empty left out."""
    detail = task.detail or {}
    how = ", ".join(filter(None, [str(task.state), ending_text(task)]))
    for stream in streams:
        text, total = str(detail.get(stream) or ""), detail.get(f"{stream}_bytes")
        if text or total:
            yield Log(
                f"task {task.task_id}, {how}",
                stream,
                text,
                total if isinstance(total, int) else None,
            )


def of_hooks(group: "TaskGroupInfo", kind: str, streams: Iterable[Stream]) -> Iterator[Log]:
    """What the runs of one hook have left. One that is cut says so in its first line."""
    for run in group.hook_runs:
        if run.kind != kind:
            continue
        for stream in streams:
            text = _tail(run, stream)
            if text:
                yield Log(f"{run.kind} on {run.manager_name}, {run.state}", stream, text, None)


def _tail(run: "HookRunInfo", stream: Stream) -> str:
    return (run.stdout_tail if stream == "stdout" else run.stderr_tail) or ""


def _one_task(cli: Cli, task: "TaskInfo", streams: tuple[Stream, ...], printer: "_Printer") -> None:
    if task.state not in TASK.terminal:
        cli.hint(f"task {task.task_id} is {task.state}: its output is kept when it has ended")
    printer.print(of_task(task, streams))


def _all_tasks(
    cli: Cli,
    client: "SyncClient",
    group: str,
    streams: tuple[Stream, ...],
    printer: "_Printer",
    *,
    failed: bool,
    follow: bool,
) -> None:
    info = client.group(group)
    tasks = client.results(group) if follow else client.tasks(group)
    for task in tasks:
        if not failed or task.state is TaskState.FAILED:
            printer.print(of_task(task, streams))
    if info.tasks_unfinished and not follow:
        cli.hint(
            f"{info.tasks_unfinished} tasks have not ended: their output comes with the end; -f waits"
        )
