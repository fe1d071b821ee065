"""`mitosis retry`: submits failed tasks again, into the same group if it accepts tasks, else into a new one.

The API copies the tasks (``mitosis/store/tasks/retry.py``); this module chooses the task group.
"""

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import typer

from mitosis.cli import plain_app
from mitosis.cli.arguments import GroupArgument
from mitosis.cli.context import Cli
from mitosis.cli.registration import register
from mitosis.cli.rendering import Item
from mitosis.cli.task.view import tasks_table
from mitosis.contracts.errors import AlreadyExists, InvalidTransition
from mitosis.contracts.lifecycle import TaskGroupState, TaskState
from mitosis.contracts.outcome import FailureKind

if TYPE_CHECKING:
    from mitosis.client.sync import SyncClient
    from mitosis.contracts.http import RetriedTasks, TaskGroupInfo

app = plain_app()
MAX_NAME = 100
_NUMBERED = re.compile(r"(.*)-retry-(\d+)")


@dataclass(frozen=True, slots=True)
class Retried:
    """Where the tasks were submitted."""

    group: "TaskGroupInfo"
    new: bool
    tasks: "RetriedTasks"


@dataclass(frozen=True, slots=True)
class Selection:
    """Which tasks to retry."""

    reasons: tuple[FailureKind, ...]
    cancelled: bool


@register(app, "retry")
def retry(
    cli: Cli,
    group: GroupArgument,
    name: Annotated[
        str | None,
        typer.Option(
            "--name", metavar="NEW", help="Always create a new task group, with this name."
        ),
    ] = None,
    reason: Annotated[
        list[FailureKind] | None,
        typer.Option(help="Only tasks that failed for this reason; repeatable."),
    ] = None,
    cancelled: Annotated[
        bool, typer.Option("--cancelled", help="Include cancelled tasks.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be submitted and stop.")
    ] = False,
) -> None:
    """Submit the failed tasks of a task group again.

    They are added to the same task group while it is open; a closed one is reopened for them and closed
    again. If it has ended, or with --name, a new task group with the same plan, hooks, tags and priority
    is created for them and closed. Tasks that an earlier retry has submitted are left out.

    Exit status: 0 when all tasks were submitted or there were none, otherwise the status of the error.
    """
    with cli.client() as client:
        old = client.group(group)
        selection = Selection(tuple(reason or ()), cancelled)
        itself = name is None and not _ended(old)
        if dry_run:
            chosen = client.retry(
                group, reasons=selection.reasons, cancelled=cancelled, dry_run=True
            )
            _show(cli, client, old, set(chosen.retry_of), selection)
            cli.output.note(f"\n{_count(chosen)} would be submitted to {_destination(old, name)}")
            return
        done = _into_itself(client, old, selection) if itself else None
        done = done or _into_new(client, old, name, selection)
    cli.output.item(_item(done, selection))


def _show(
    cli: Cli, client: "SyncClient", group: "TaskGroupInfo", ids: set[int], selection: Selection
) -> None:
    states = [TaskState.FAILED, TaskState.CANCELLED] if selection.cancelled else [TaskState.FAILED]
    tasks = [
        task
        for state in states
        for task in client.tasks(group.task_group_id, state=state)
        if task.task_id in ids
    ]
    cli.output.table(tasks_table(sorted(tasks, key=lambda task: task.task_id)))


def following_name(name: str) -> str:
    """Return the next name: ``nightly`` → ``nightly-retry-1`` → ``nightly-retry-2``, cut to fit."""
    found = _NUMBERED.fullmatch(name)
    stem, number = (found[1], int(found[2]) + 1) if found else (name, 1)
    ending = f"-retry-{number}"
    return stem[: MAX_NAME - len(ending)] + ending


def _ended(group: "TaskGroupInfo") -> bool:
    return group.state in (TaskGroupState.COMPLETE, TaskGroupState.CANCELLED)


def _into_itself(
    client: "SyncClient", group: "TaskGroupInfo", selection: Selection
) -> Retried | None:
    """Retry into the same group; return None if it has ended since it was read."""
    key = group.task_group_id
    if group.state is TaskGroupState.OPEN:
        return Retried(group, False, _retry(client, group, key, selection))
    chosen = client.retry(
        key, reasons=selection.reasons, cancelled=selection.cancelled, dry_run=True
    )
    if not chosen.retry_of:
        return Retried(group, False, chosen)
    try:
        client.reopen(key, reason="retrying failed tasks")
    except InvalidTransition:
        return None
    try:
        tasks = _retry(client, group, key, selection)
    finally:
        closed = client.close_group(key, reason="failed tasks were submitted again")
    return Retried(closed, False, tasks)


def _into_new(
    client: "SyncClient", old: "TaskGroupInfo", name: str | None, selection: Selection
) -> Retried:
    source = old.task_group_id
    chosen = client.retry(
        source, reasons=selection.reasons, cancelled=selection.cancelled, dry_run=True
    )
    if not chosen.retry_of:
        return Retried(old, False, chosen)
    group = _create(client, old, name)
    key = group.task_group_id
    try:
        tasks = _retry(client, old, key, selection)
    except BaseException:
        client.cancel(key, reason="the tasks to retry could not be submitted")
        raise
    if not tasks.retry_of:
        client.cancel(key, reason="another retry submitted the tasks first")
        return Retried(old, False, tasks)
    return Retried(
        client.close_group(key, reason=f"contains the failed tasks of {old.name}"), True, tasks
    )


def _retry(
    client: "SyncClient", old: "TaskGroupInfo", into: UUID, selection: Selection
) -> "RetriedTasks":
    return client.retry(
        old.task_group_id, into=into, reasons=selection.reasons, cancelled=selection.cancelled
    )


def _create(client: "SyncClient", old: "TaskGroupInfo", name: str | None) -> "TaskGroupInfo":
    """Create a group like the old one, under the given name or the first free one."""
    from mitosis.cli.validation import validated
    from mitosis.contracts.http import TaskGroupSpec

    values = spec_of(old)
    if old.assignment_method == "user_specified":
        values["manager_ids"] = [one.manager_id for one in client.group_managers(old.task_group_id)]
    wanted = name or following_name(old.name)
    while True:
        spec: TaskGroupSpec = validated(
            TaskGroupSpec, {**values, "name": wanted}, {"name": "--name"}
        )
        try:
            return client.create_group(spec)
        except AlreadyExists as error:
            if name is not None:
                error.facts.setdefault("option", "--name")
                raise
            wanted = following_name(wanted)


def spec_of(group: "TaskGroupInfo") -> dict[str, Any]:
    """Return the spec of the group without its name, its hosts and its deadline."""
    from mitosis.contracts.http import TaskGroupSpec

    kept = TaskGroupSpec.model_fields.keys() - {"name", "manager_ids", "close_deadline"}
    return group.model_dump(include=kept)


def _destination(old: "TaskGroupInfo", name: str | None) -> str:
    if name is None and not _ended(old):
        return f"{old.name} ({old.state})"
    if name is not None:
        return f"a new task group: {name}"
    return f"a new task group: {following_name(old.name)}, or the next free name"


def _item(done: Retried, selection: Selection) -> Item:
    tasks = done.tasks
    if not tasks.retry_of:
        fields = [("retried", "nothing to retry")]
        if done.group.tasks_cancelled and not selection.cancelled:
            fields.append(
                (
                    "left out",
                    f"{done.group.tasks_cancelled} cancelled (include them with --cancelled)",
                )
            )
        return Item({"task_ids": [], "retry_of": []}, fields, "")
    ids = sorted(set(tasks.task_ids))
    data = {
        "task_group_id": str(done.group.task_group_id),
        "name": done.group.name,
        "new_group": done.new,
        "task_ids": tasks.task_ids,
        "retry_of": tasks.retry_of,
    }
    fields = [
        ("retried", _count(tasks)),
        ("in", f"{done.group.name}, {'a new task group' if done.new else 'the same task group'}"),
        ("state", str(done.group.state)),
        ("follow with", f"mitosis watch {done.group.name}"),
    ]
    if len(ids) < len(tasks.retry_of):
        fields.append(("as", f"{len(ids)} tasks: some share a deduplication key"))
    return Item(data, fields, "\n".join(map(str, ids)))


def _count(tasks: "RetriedTasks") -> str:
    return "1 task" if len(tasks.retry_of) == 1 else f"{len(tasks.retry_of)} tasks"
