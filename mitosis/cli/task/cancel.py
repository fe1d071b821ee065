"""`mitosis task cancel`: cancels single tasks, or those that a filter names."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import typer

from mitosis.cli.completion import group_names, groups_and_tasks
from mitosis.cli.context import Cli
from mitosis.cli.references import check_reference
from mitosis.cli.rendering import Item
from mitosis.cli.task.find import split_target
from mitosis.contracts.errors import InvalidRequest, NotFound

if TYPE_CHECKING:
    from mitosis.client.sync import SyncClient
    from mitosis.contracts.task_cancel import CancelledTasks

OPTION_OF_FIELD = {
    "states": "--state",
    "labels": "--label",
    "min_priority": "--min-priority",
    "max_priority": "--max-priority",
    "reason": "--reason",
    "grace_seconds": "--grace",
}


TasksArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[TASK]...",
        help="GROUP/NUMBER or a UUID; with --group only the number.",
        autocompletion=groups_and_tasks,
    ),
]
GroupOption = Annotated[
    str | None,
    typer.Option(
        metavar="GROUP",
        help="The task group of the numbers, or of the filter.",
        autocompletion=group_names,
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The options that choose tasks of a group."""

    every: Annotated[bool, typer.Option("--all", help="Every unfinished task of --group.")] = False
    state: Annotated[
        list[str] | None,
        typer.Option(
            metavar="STATE",
            help="Tasks of --group that are ready, delayed, blocked or running; repeatable.",
        ),
    ] = None
    label: Annotated[
        list[str] | None,
        typer.Option(help="Tasks of --group with this label; repeatable: with all of them."),
    ] = None
    min_priority: Annotated[
        int | None, typer.Option(metavar="N", help="Tasks of --group of this priority or higher.")
    ] = None
    max_priority: Annotated[
        int | None, typer.Option(metavar="N", help="Tasks of --group of this priority or lower.")
    ] = None

    def fields(self) -> dict[str, Any]:
        """Return the fields of the filter that are given."""
        given = {
            "states": self.state,
            "labels": self.label,
            "min_priority": self.min_priority,
            "max_priority": self.max_priority,
        }
        return {key: value for key, value in given.items() if value not in (None, [])}


def cancel(
    cli: Cli,
    choice: Choice,
    tasks: TasksArgument = None,
    group: GroupOption = None,
    reason: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Reason, stored with the tasks.")
    ] = None,
    grace: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="Time from SIGTERM to SIGKILL. [default: the task group's]"
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only count what would be cancelled.")
    ] = False,
) -> None:
    """Cancel tasks: those that run are stopped with grace, all others never start.

    Name tasks, or choose unfinished tasks of a task group by --all, --state, --label and priority. The
    result of a task that has ended stays.
    """
    from mitosis.cli.validation import duration, named, validated
    from mitosis.contracts.task_cancel import CancelTask, TaskFilter

    chosen = choice.fields()
    _check_choice(tasks, group, choice.every, chosen)
    span = duration(grace, "--grace")
    seconds = None if span is None else span.total_seconds()
    validated(CancelTask, {"reason": reason, "grace_seconds": seconds}, OPTION_OF_FIELD)
    which = validated(TaskFilter, chosen, OPTION_OF_FIELD)
    how: dict[str, Any] = {"reason": reason, "grace": span, "dry_run": dry_run}
    with named(OPTION_OF_FIELD), cli.client() as client:
        if tasks:
            done = [
                client.cancel_tasks(owner, numbers, **how)
                for owner, numbers in _by_group(client, tasks, group).items()
            ]
        else:
            done = [client.cancel_tasks(group or "", which, **how)]
    cli.output.item(cancelled_item(done, dry_run=dry_run))
    missing = [str(one.task_id) for part in done for one in part.tasks if one.outcome == "unknown"]
    if missing:
        raise NotFound(f"there is no task {', '.join(missing)}")


def _check_choice(
    tasks: Sequence[str] | None, group: str | None, every: bool, chosen: dict[str, Any]
) -> None:
    """Check that tasks are named, or chosen in a group.

    Raises:
        InvalidRequest: neither or both.
    """
    if tasks and (every or chosen):
        raise InvalidRequest("name tasks, or choose them by options, not both", option="TASK")
    if not tasks and not (every or chosen):
        raise InvalidRequest(
            "name tasks, as in: mitosis task cancel NAME/17; or choose them, as in: mitosis task cancel"
            " --group NAME --state ready",
            option="TASK",
        )
    if not tasks and group is None:
        raise InvalidRequest("name the task group to choose from", option="--group")
    if group is not None:
        check_reference(group)


def _by_group(
    client: "SyncClient", tasks: Sequence[str], group: str | None
) -> dict[str, list[int]]:
    """Return the numbers of the tasks by the reference of their group."""
    found: dict[str, list[int]] = defaultdict(list)
    for text in tasks:
        if group is not None and text.isascii() and text.isdigit():
            found[group].append(int(text))
            continue
        owner, number = split_target(text)
        if isinstance(number, UUID):
            task = client.task(number)
            owner, number = str(task.task_group_id), task.task_id
        if number is None:
            raise InvalidRequest(
                f"{text!r} is not a task; write GROUP/NUMBER, or --group GROUP and the number",
                option="TASK",
            )
        found[owner].append(number)
    return found


def cancelled_item(done: "Sequence[CancelledTasks]", *, dry_run: bool) -> Item:
    """Return how many tasks were cancelled, or would be."""
    names = ("cancelled", "stopping", "ended", "unknown")
    counts = {name: sum(getattr(part, name) for part in done) for name in names}
    would = "would be " if dry_run else ""
    fields = [
        (f"{would}cancelled before they ran", str(counts["cancelled"])),
        (f"{would}stopped on their hosts", str(counts["stopping"])),
    ]
    if counts["ended"]:
        fields.append(("had ended before, result kept", str(counts["ended"])))
    data = {
        **counts,
        "dry_run": dry_run,
        "tasks": [one.model_dump(mode="json") for part in done for one in part.tasks],
    }
    return Item(data, fields, str(counts["cancelled"] + counts["stopping"]))
