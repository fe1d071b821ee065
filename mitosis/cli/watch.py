"""`mitosis watch`: follows a task group live, with the display and exit statuses of `mitosis run`."""

import asyncio
import sys
from typing import TYPE_CHECKING

from mitosis.cli import plain_app
from mitosis.cli.arguments import GroupArgument, ProgressOption
from mitosis.cli.context import Cli
from mitosis.cli.follow.display import Display, choose_display, short_span
from mitosis.cli.follow.exit_statuses import RunExit, RunExits
from mitosis.cli.registration import register
from mitosis.contracts.lifecycle import TaskGroupState, TaskState

if TYPE_CHECKING:
    from mitosis.client.client import Client
    from mitosis.contracts.http import TaskGroupInfo

app = plain_app()


@register(app, "watch", exits=RunExits(never=(RunExit.DEADLINE, RunExit.CONFLICT)))
def watch(cli: Cli, group: GroupArgument, progress: ProgressOption = "auto") -> int:
    """Follow a task group until it is settled, then show its failures by reason, as `mitosis run` does.

    Ctrl-C only stops watching. With --json, every event is one line of JSON on standard output: `kind` is
    group, state, lease, hook, result or end, and the member of that name has the details.
    """
    display = choose_display(progress)
    with cli.client() as client:
        found = client.group(group)
    try:
        return asyncio.run(_follow(cli, found, display))
    except KeyboardInterrupt:
        display.clear()
        display.say(f"stopped watching; {found.name} continues. Watch again: mitosis watch {group}")
        return RunExit.INTERRUPTED


async def _follow(cli: Cli, group: "TaskGroupInfo", display: Display) -> RunExit:
    from mitosis.cli.follow.failures import Failures
    from mitosis.cli.follow.follower import Follower, run_exit_of
    from mitosis.cli.long_client import client_for_long
    from mitosis.cli.outages import Outages

    failures = Failures()
    to = cli.target
    outages = Outages(display.say)
    async with client_for_long(to.address, to.token, to.ca_file, outages) as client:
        if cli.as_json:
            return run_exit_of(await _print_events(client, group))
        follower = Follower(client, display, outages=outages)
        if group.state is TaskGroupState.OPEN:
            display.say(_open_text(group))
        async for info in follower.until_settled(group.task_group_id):
            group = info
        async for task in client.tasks(group.task_group_id, state=TaskState.FAILED):
            failures.add(task)
    return follower.conclude(group, failures)


def _open_text(group: "TaskGroupInfo") -> str:
    """Return the note that an open group may never end, and the command that ends it."""
    after = group.auto_close_timeout
    alone = (
        f", or {short_span(round(after.total_seconds()))} after the last submission"
        if after
        else ""
    )
    return f"{group.name} is open for more tasks. It ends after: mitosis group close {group.name}{alone}"


async def _print_events(client: "Client", group: "TaskGroupInfo") -> "TaskGroupInfo":
    """Print one line per event; return the task group as it ended."""
    async for event in client.events(group.task_group_id):
        sys.stdout.write(event.text() + "\n")
        sys.stdout.flush()
        if event.kind == "end" and event.group is not None:
            group = event.group
    return group
