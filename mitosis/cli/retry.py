"""`mitosis retry`: submit again what failed, into the group itself while it takes tasks, else into a new one.

The API does it, part by part (``mitosis/store/tasks/retries.py``); here is decided where the tasks go.
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
class Done:
    """Where the tasks went."""

    group: "TaskGroupInfo"
    new: bool
    tasks: "RetriedTasks"


@dataclass(frozen=True, slots=True)
class Wish:
    """Which tasks."""

    reasons: tuple[FailureKind, ...]
    cancelled: bool


@register(app, "retry")
def retry(
    cli: Cli,
    group: GroupArgument,
    name: Annotated[
        str | None,
        typer.Option("--name", metavar="NEW", help="Make a new group of this name in any case."),
    ] = None,
    reason: Annotated[
        list[FailureKind] | None,
        typer.Option(help="Only tasks that failed in this way; may be repeated."),
    ] = None,
    cancelled: Annotated[
        bool, typer.Option("--cancelled", help="The cancelled tasks as well.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be submitted, and do nothing.")
    ] = False,
) -> None:
    """Submit the failed tasks of a group again.

    They go into the group itself while it is open; a closed one is opened for them and closed again.
    A group that has ended, or --name, makes a new group with the same plan, hooks, tags and priority,
    which is closed when they are in it. What an earlier retry has submitted is left out.

    Exit status: 0 done, or nothing to do; else that of the error.
    """
    with cli.client() as client:
        old = client.group(group)
        wish = Wish(tuple(reason or ()), cancelled)
        itself = name is None and not _ended(old)
        if dry_run:
            chosen = client.retry(group, reasons=wish.reasons, cancelled=cancelled, dry_run=True)
            _show(cli, client, old, set(chosen.retry_of), wish)
            cli.output.note(f"\n{_count(chosen)} would go into {_destination(old, name)}")
            return
        done = _into_itself(client, old, wish) if itself else None
        done = done or _into_new(client, old, name, wish)
    cli.output.item(_item(done, wish))


def _show(
    cli: Cli, client: "SyncClient", group: "TaskGroupInfo", ids: set[int], wish: Wish
) -> None:
    states = [TaskState.FAILED, TaskState.CANCELLED] if wish.cancelled else [TaskState.FAILED]
    tasks = [
        task
        for state in states
        for task in client.tasks(group.task_group_id, state=state)
        if task.task_id in ids
    ]
    cli.output.table(tasks_table(sorted(tasks, key=lambda task: task.task_id)))


def following_name(name: str) -> str:
    """``nightly`` → ``nightly-retry-1`` → ``nightly-retry-2``; never longer than a name may be."""
    found = _NUMBERED.fullmatch(name)
    stem, number = (found[1], int(found[2]) + 1) if found else (name, 1)
    ending = f"-retry-{number}"
    return stem[: MAX_NAME - len(ending)] + ending


def _ended(group: "TaskGroupInfo") -> bool:
    return group.state in (TaskGroupState.COMPLETE, TaskGroupState.CANCELLED)


def _into_itself(client: "SyncClient", group: "TaskGroupInfo", wish: Wish) -> Done | None:
    """None: the group has ended meanwhile."""
    key = group.task_group_id
    if group.state is TaskGroupState.OPEN:
        return Done(group, False, _retry(client, group, key, wish))
    chosen = client.retry(key, reasons=wish.reasons, cancelled=wish.cancelled, dry_run=True)
    if not chosen.retry_of:
        return Done(group, False, chosen)
    try:
        client.reopen(key, reason="failed tasks are submitted again")
    except InvalidTransition:
        return None
    try:
        tasks = _retry(client, group, key, wish)
    finally:
        closed = client.close_group(key, reason="failed tasks have been submitted again")
    return Done(closed, False, tasks)


def _into_new(client: "SyncClient", old: "TaskGroupInfo", name: str | None, wish: Wish) -> Done:
    source = old.task_group_id
    chosen = client.retry(source, reasons=wish.reasons, cancelled=wish.cancelled, dry_run=True)
    if not chosen.retry_of:
        return Done(old, False, chosen)
    group = _create(client, old, name)
    key = group.task_group_id
    try:
        tasks = _retry(client, old, key, wish)
    except BaseException:
        client.cancel(key, reason="the tasks to retry could not be submitted")
        raise
    if not tasks.retry_of:
        client.cancel(key, reason="another retry was faster")
        return Done(old, False, tasks)
    return Done(client.close_group(key, reason=f"has the failed tasks of {old.name}"), True, tasks)


def _retry(client: "SyncClient", old: "TaskGroupInfo", into: UUID, wish: Wish) -> "RetriedTasks":
    return client.retry(
        old.task_group_id, into=into, reasons=wish.reasons, cancelled=wish.cancelled
    )


def _create(client: "SyncClient", old: "TaskGroupInfo", name: str | None) -> "TaskGroupInfo":
    """A group like the old one, under the given name or the first free one."""
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
    """What was said when the group was made, without its name, its hosts and times that have passed."""
    from mitosis.contracts.http import TaskGroupSpec

    said = TaskGroupSpec.model_fields.keys() - {"name", "manager_ids", "close_deadline"}
    return group.model_dump(include=said)


def _destination(old: "TaskGroupInfo", name: str | None) -> str:
    if name is None and not _ended(old):
        return f"{old.name} ({old.state})"
    if name is not None:
        return f"a new group: {name}"
    return f"a new group: {following_name(old.name)}, or the next free name"


def _item(done: Done, wish: Wish) -> Item:
    tasks = done.tasks
    if not tasks.retry_of:
        fields = [("retried", "nothing to retry")]
        if done.group.tasks_cancelled and not wish.cancelled:
            fields.append(("left out", f"{done.group.tasks_cancelled} cancelled (see --cancelled)"))
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
        ("in", f"{done.group.name}, {'a new group' if done.new else 'the group itself'}"),
        ("state", str(done.group.state)),
        ("follow it", f"mitosis watch {done.group.name}"),
    ]
    if len(ids) < len(tasks.retry_of):
        fields.append(("as", f"{len(ids)} tasks: some have one deduplication key"))
    return Item(data, fields, "\n".join(map(str, ids)))


def _count(tasks: "RetriedTasks") -> str:
    return "1 task" if len(tasks.retry_of) == 1 else f"{len(tasks.retry_of)} tasks"
