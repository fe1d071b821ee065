"""`mitosis group …`: registers the commands of this folder, and defines the short ones."""

from typing import Annotated

import typer

from mitosis.cli import plain_app
from mitosis.cli.arguments import GroupArgument, LimitOption
from mitosis.cli.context import Cli
from mitosis.cli.group import create, managers, plan, submit, verbs, wait
from mitosis.cli.group.view import group_item, groups_table
from mitosis.cli.registration import register
from mitosis.cli.task.view import tasks_table
from mitosis.contracts.lifecycle import ListedState, TaskGroupState

app = plain_app()


@app.callback()
def group() -> None:
    """Create, fill, watch and end task groups."""


register(app, "create")(create.create)
register(app, "plan")(plan.plan)
register(app, "submit")(submit.submit)


@register(app, "show")
def show(cli: Cli, group: GroupArgument) -> None:
    """Show one task group: state, counts, hosts, and why it waits."""
    with cli.client() as client:
        cli.output.item(group_item(client.group(group)))


@register(app, "list")
def list_groups(
    cli: Cli,
    state: Annotated[
        TaskGroupState | None, typer.Option(help="Only task groups in this state.")
    ] = None,
    tag: Annotated[str | None, typer.Option(help="Only task groups with this tag.")] = None,
    label: Annotated[str | None, typer.Option(help="Only task groups with this label.")] = None,
    name: Annotated[
        str | None, typer.Option(help="Only task groups with exactly this name.")
    ] = None,
    settled: Annotated[
        bool | None,
        typer.Option("--settled/--unsettled", help="Only task groups that are (not) settled."),
    ] = None,
    limit: LimitOption = None,
) -> None:
    """List task groups, newest first."""
    from mitosis.cli.validation import value_of
    from mitosis.contracts.identifiers import Name, Tag

    for option, kind, value in (
        ("--name", Name, name),
        ("--tag", Tag, tag),
        ("--label", Tag, label),
    ):
        if value is not None:
            value_of(kind, value, option)
    with cli.client() as client:
        found = client.groups(state=state, tag=tag, label=label, name=name, settled=settled)
        cli.output.table(groups_table(cli.take(found, limit)))


@register(app, "tasks")
def tasks(
    cli: Cli,
    group: GroupArgument,
    state: Annotated[
        ListedState | None,
        typer.Option(
            help="Only tasks in this state; held: claimed by a host, running or about to be started."
        ),
    ] = None,
    limit: LimitOption = None,
) -> None:
    """List the tasks of a task group with their results, in the order of submission."""
    with cli.client() as client:
        found = cli.take(client.tasks(group, state=state), limit)
    cli.output.table(tasks_table(found))
    if found:
        cli.output.note(f"\ndetails of one: mitosis task show {found[0].task_id} --group {group}")


register(app, "managers")(managers.managers)
for name, verb in verbs.COMMANDS.items():
    register(app, name)(verb)
register(app, "wait")(wait.wait)
