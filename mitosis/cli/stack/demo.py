"""`mitosis demo`: runs and verifies the example campaign on a temporary stack."""

import asyncio
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mitosis.cli.exit import ExitStatus
from mitosis.cli.group.wait import ProgressLine, progress_text
from mitosis.contracts.errors import InvalidRequest

if TYPE_CHECKING:
    from examples.stdlib_campaign.campaign import Verification
    from examples.stdlib_campaign.run import Report
    from mitosis.contracts.http import TaskGroupInfo

PLAIN_PROGRESS_SECONDS = 2.0


def demo(
    workers: Annotated[
        int, typer.Option(min=1, help="Worker processes; each is pinned to one core.")
    ] = 2,
    keep: Annotated[
        Path | None,
        typer.Option(help="Keep data folder, logs and results in this new folder.", metavar="DIR"),
    ] = None,
) -> int:
    """Start a temporary stack, compress and checksum the standard library on it, and verify the results.

    It uses real PostgreSQL, Temporal, agent and workers, shows live progress and a summary, and stops
    everything at the end.
    """
    from mitosis.cli.stack.temporary_folder import temporary_folder
    from mitosis.cli.validation import validated
    from mitosis.contracts.allocation import WorkerAllocationPlan
    from mitosis.telemetry import configure_logging

    configure_logging(level="ERROR")
    validated(WorkerAllocationPlan, {"worker_count": workers}, {"worker_count": "--workers"})
    if keep is not None:
        _make(keep)
    place = nullcontext(keep.resolve()) if keep else temporary_folder("mitosis-demo-")
    with place as folder:
        return asyncio.run(_demo(folder, workers))


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        raise InvalidRequest(
            f"name a new folder; {folder} cannot be created: {error.strerror}", option="--keep"
        ) from None


async def _demo(folder: Path, workers: int) -> int:
    from examples.stdlib_campaign.campaign import Campaign, verify
    from examples.stdlib_campaign.run import run
    from mitosis.cli.stack.whole_stack import whole_stack
    from mitosis.settings import Settings

    timeline = _Timeline()
    campaign = Campaign(folder / "campaign")
    async with whole_stack(Settings(data_dir=folder / "data"), timeline.say) as stack:
        timeline.say(f"API {stack.connection.api_url}")
        async with stack.client() as client:
            report = await run(client, campaign, "stdlib", workers, timeline.progress)
        timeline.say(f"group is {report.group.state}, settled, result {report.group.result}")
    timeline.say("everything has stopped")
    checked = await asyncio.to_thread(verify, campaign)
    timeline.say("every result was recomputed from the files")
    _print_table(_summary(report, checked, timeline.seconds))
    for problem in checked.problems:
        sys.stderr.write(f"error: {problem}\n")
    return ExitStatus.PROBLEM_FOUND if checked.problems else ExitStatus.OK


class _Timeline:
    """Prints events with their time; progress is one live line on a terminal."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._line = ProgressLine(sys.stdout, enabled=True)
        self._shown = 0.0

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    def say(self, text: str) -> None:
        self._line.clear()
        typer.echo(f"{self.seconds:6.1f} s  {text}")

    def progress(self, group: "TaskGroupInfo") -> None:
        text = progress_text(group, time.time())
        if self._line.enabled:
            self._line.show(f"{self.seconds:6.1f} s  {text}")
        elif self.seconds - self._shown >= PLAIN_PROGRESS_SECONDS:
            self._shown = self.seconds
            self.say(text)


def _summary(report: "Report", checked: "Verification", seconds: float) -> list[tuple[str, str]]:
    megabytes = checked.source_bytes / 1e6
    rows = [
        ("tasks", f"{report.submitted} submitted, {report.results} results, one each"),
        (
            "files",
            f"{checked.files} verified, {megabytes:.1f} MB down to {checked.compressed_bytes / 1e6:.1f} MB",
        ),
    ]
    rows += [
        (
            f"worker {number}",
            f"{worker.tasks} tasks, {worker.cpu_seconds:.2f} s of CPU, on core "
            + (", ".join(map(str, worker.cpus)) or "any"),
        )
        for number, worker in report.workers.items()
    ]
    rows += [
        ("rate", f"{report.rate:.0f} tasks/s, {megabytes / (report.task_seconds or 1):.1f} MB/s"),
        (
            "time",
            f"setup {report.setup_seconds:.2f} s, tasks {report.task_seconds:.2f} s, "
            f"teardown {report.teardown_seconds:.2f} s; campaign {report.total_seconds:.2f} s, "
            f"all {seconds:.1f} s",
        ),
        ("result", "every checksum is correct" if not checked.problems else "PROBLEMS, see below"),
    ]
    return rows


def _print_table(rows: list[tuple[str, str]]) -> None:
    width = max(len(label) for label, _ in rows)
    typer.echo("")
    for label, text in rows:
        typer.echo(f"  {label:<{width}}  {text}")
    typer.echo("")
