"""`mitosis retry`: submit again what failed, into the group itself while it takes tasks, else into a new one.

A task that is submitted again carries the label ``retry-of:NUMBER``. So a second retry of the same
group leaves out what the first one has submitted, and anyone can see what a task replaces.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from mitosis.cli import plain_app
from mitosis.cli.command import Cli, GroupArgument, register
from mitosis.cli.output import Item
from mitosis.cli.task_view import tasks_table
from mitosis.contracts.errors import AlreadyExists, InvalidTransition
from mitosis.contracts.lifecycle import TaskGroupState, TaskState
from mitosis.contracts.outcome import FailureKind
from mitosis.contracts.task import TaskSubmission

if TYPE_CHECKING:
    from mitosis.client.sync import SyncClient
    from mitosis.contracts.http import TaskGroupInfo, TaskInfo

app = plain_app()
MARK = "retry-of:"
MAX_NAME = 100
_NUMBERED = re.compile(r"(.*)-retry-(\d+)")


@dataclass(frozen=True, slots=True)
class Done:
    """Where the tasks went."""

    group: "TaskGroupInfo"
    new: bool
    task_ids: list[int]


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
        chosen = to_retry(
            client.tasks(old.task_group_id), reasons=reason or (), cancelled=cancelled
        )
        if not chosen:
            cli.output.item(_item(None, []))
            return
        if dry_run:
            cli.output.table(tasks_table(chosen))
            cli.output.note(f"\n{_count(chosen)} would go into {_destination(old, name)}")
            return
        done = _into_itself(client, old, chosen) if name is None and not _ended(old) else None
        done = done or _into_new(client, old, name, chosen)
    cli.output.item(_item(done, chosen))


def to_retry(
    tasks: Iterable["TaskInfo"], *, reasons: Sequence[FailureKind], cancelled: bool
) -> list["TaskInfo"]:
    """What ended badly, in the order of submission, and is not in the group again already."""
    states = {TaskState.FAILED, TaskState.CANCELLED} if cancelled else {TaskState.FAILED}
    found: list[TaskInfo] = []
    again: set[int] = set()
    for task in tasks:
        again.update(marks(task))
        if task.state in states and (not reasons or task.kind in reasons):
            found.append(task)
    return [task for task in found if task.task_id not in again]


def marks(task: "TaskInfo") -> list[int]:
    """The numbers of the tasks that this one replaces."""
    labels = task.spec.get("labels")
    words = [str(label) for label in labels] if isinstance(labels, list) else []
    numbers = [word.removeprefix(MARK) for word in words if word.startswith(MARK)]
    return [int(number) for number in numbers if number.isascii() and number.isdigit()]


def again(task: "TaskInfo") -> TaskSubmission:
    """The same submission, marked with the number of the task that it replaces."""
    spec = msgspec.convert(task.spec, TaskSubmission)
    kept = [label for label in spec.labels if not label.startswith(MARK)]
    return msgspec.structs.replace(spec, labels=[*kept, f"{MARK}{task.task_id}"])


def following_name(name: str) -> str:
    """``nightly`` → ``nightly-retry-1`` → ``nightly-retry-2``; never longer than a name may be."""
    found = _NUMBERED.fullmatch(name)
    stem, number = (found[1], int(found[2]) + 1) if found else (name, 1)
    ending = f"-retry-{number}"
    return stem[: MAX_NAME - len(ending)] + ending


def _ended(group: "TaskGroupInfo") -> bool:
    return group.state in (TaskGroupState.COMPLETE, TaskGroupState.CANCELLED)


def _into_itself(
    client: "SyncClient", group: "TaskGroupInfo", chosen: Sequence["TaskInfo"]
) -> Done | None:
    """None: the group has ended meanwhile."""
    key = group.task_group_id
    if group.state is TaskGroupState.OPEN:
        return Done(group, False, client.submit(key, map(again, chosen)))
    try:
        client.reopen(key, reason="failed tasks are submitted again")
    except InvalidTransition:
        return None
    try:
        ids = client.submit(key, map(again, chosen))
    finally:
        closed = client.close(key, reason="failed tasks have been submitted again")
    return Done(closed, False, ids)


def _into_new(
    client: "SyncClient", old: "TaskGroupInfo", name: str | None, chosen: Sequence["TaskInfo"]
) -> Done:
    group = _create(client, old, name)
    key = group.task_group_id
    try:
        ids = client.submit(key, map(again, chosen))
    except BaseException:
        client.cancel(key, reason="the tasks to retry could not be submitted")
        raise
    return Done(client.close(key, reason=f"has the failed tasks of {old.name}"), True, ids)


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
    return f"a new group: {name or following_name(old.name)}"


def _item(done: Done | None, chosen: Sequence["TaskInfo"]) -> Item:
    if done is None:
        return Item({"task_ids": [], "retry_of": []}, [("retried", "nothing to retry")], "")
    ids = sorted(set(done.task_ids))
    data = {
        "task_group_id": str(done.group.task_group_id),
        "name": done.group.name,
        "new_group": done.new,
        "task_ids": done.task_ids,
        "retry_of": [task.task_id for task in chosen],
    }
    fields = [
        ("retried", _count(chosen)),
        ("in", f"{done.group.name}, {'a new group' if done.new else 'the group itself'}"),
        ("state", str(done.group.state)),
        ("follow it", f"mitosis group wait {done.group.name}"),
    ]
    if len(ids) < len(chosen):
        fields.append(("as", f"{len(ids)} tasks: some have one deduplication key"))
    return Item(data, fields, "\n".join(map(str, ids)))


def _count(chosen: Sequence["TaskInfo"]) -> str:
    return "1 task" if len(chosen) == 1 else f"{len(chosen)} tasks"
