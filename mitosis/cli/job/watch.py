"""`mitosis job watch`: follows a run to its end as a live tree, then a summary and an exit status."""

import sys
from typing import TYPE_CHECKING
from uuid import UUID

from mitosis.cli.arguments import ProgressOption
from mitosis.cli.context import Cli
from mitosis.cli.exit import ExitStatus
from mitosis.cli.job.run_references import RunArgument, run_id_of

if TYPE_CHECKING:
    from mitosis.cli.job.run_display import RunDisplay
    from mitosis.cli.outages import Outages
    from mitosis.client.job_run import JobRun
    from mitosis.contracts.runs import StepTask

TICK_SECONDS = 1.0


def watch(cli: Cli, run: RunArgument, progress: ProgressOption = "auto") -> int:
    """Follow a run until it has ended: a live tree on a terminal, otherwise a line for each change.

    With --json, the run after each change is one line of JSON on standard output.

    Exit status: 0 success, 10 the run has failed, 11 it was cancelled, 130 Ctrl-C. Ctrl-C only stops
    watching.
    """
    import asyncio

    from mitosis.cli.job.run_display import choose_run_display

    display = choose_run_display("none" if cli.as_json else progress)
    with cli.client() as client:
        run_id = run_id_of(client, run)
    try:
        return asyncio.run(_follow(cli, run_id, display))
    except KeyboardInterrupt:
        display.clear()
        cli.hint(f"stopped watching; the run continues. Watch again: mitosis job watch {run_id}")
        return ExitStatus.INTERRUPTED


async def _follow(cli: Cli, run_id: UUID, display: "RunDisplay") -> ExitStatus:
    from mitosis.cli.follow.display import now
    from mitosis.cli.job.run_view import OF_STATE, summary
    from mitosis.cli.long_client import client_for_long
    from mitosis.cli.outages import Outages

    outages, to = Outages(display.say), cli.target
    async with client_for_long(to.address, to.token, to.ca_file, outages) as client:
        run = await client.run(run_id)
        if cli.as_json:
            async for view in run.changes():
                sys.stdout.write(view.model_dump_json() + "\n")
                sys.stdout.flush()
            return OF_STATE[run.state]
        await _show_changes(run, display, outages)
        failed = await failed_tasks(run)
    display.clear()
    for line in summary(run.info, failed, now()):
        display.say(line)
    status = OF_STATE[run.state]
    if status is not ExitStatus.OK:
        display.say(f"exit status {status:d}")
    return status


async def _show_changes(run: "JobRun", display: "RunDisplay", outages: "Outages") -> None:
    import asyncio
    from datetime import timedelta

    from mitosis.cli.follow.display import LIVE_EVERY_SECONDS
    from mitosis.concurrency import cancel_and_wait

    ticking = asyncio.create_task(_tick(display))
    try:
        async for view in run.changes(timedelta(seconds=LIVE_EVERY_SECONDS)):
            outages.over()
            display.show(view)
    finally:
        await cancel_and_wait(ticking)


async def _tick(display: "RunDisplay") -> None:
    import asyncio

    while True:
        await asyncio.sleep(TICK_SECONDS)
        display.tick()


async def failed_tasks(run: "JobRun") -> "dict[str, list[StepTask]]":
    """Return some failed tasks of each step that has any."""
    from mitosis.cli.job.run_view import FAILED_TASKS_SHOWN
    from mitosis.contracts.lifecycle import TaskState

    found: dict[str, list[StepTask]] = {}
    for step in run.info.steps:
        if not step.failed:
            continue
        async for task in run.tasks(step.name, state=TaskState.FAILED):
            found.setdefault(step.name, []).append(task)
            if len(found[step.name]) == FAILED_TASKS_SHOWN:
                break
    return found
