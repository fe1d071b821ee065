"""`mitosis group managers`: lists and changes the hosts that may serve a task group."""

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from mitosis.cli.arguments import GroupArgument
from mitosis.cli.context import Cli
from mitosis.cli.manager.find import find_manager
from mitosis.cli.manager.view import managers_table
from mitosis.cli.rendering import Item, Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mitosis.contracts.group_managers import RefreshedManagers
    from mitosis.contracts.http import GroupManagerInfo


def managers(
    cli: Cli,
    group: GroupArgument,
    add: Annotated[
        list[str] | None,
        typer.Option(metavar="HOST", help="Add this host, with or without the tags; repeatable."),
    ] = None,
    remove: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HOST",
            help="Remove this host: it finishes what it runs and returns the rest; repeatable.",
        ),
    ] = None,
    refresh: Annotated[
        bool, typer.Option("--refresh", help="Match hosts to the tags again and show what changed.")
    ] = False,
) -> None:
    """List the hosts that may serve a task group: matched by its tags, or added by name.

    A change of tags, of the task group or of a host, has no effect before --refresh. A host that was
    removed stays so until it is added again. The order is --add, --remove, --refresh.
    """
    with cli.client() as client:
        added = [find_manager(client, text).manager_id for text in add or ()]
        removed = [find_manager(client, text).manager_id for text in remove or ()]
        if added:
            client.add_managers(group, added)
        if removed:
            client.remove_managers(group, removed)
        if refresh:
            cli.output.item(refreshed_item(client.refresh_managers(group)))
        else:
            cli.output.table(members_table(client.group_managers(group)))


def members_table(members: "Sequence[GroupManagerInfo]") -> Table:
    """Return the table of hosts, with how each became a member."""
    table = managers_table(members)
    rows = [(*row, _chosen(one)) for row, one in zip(table.rows, members, strict=True)]
    return replace(table, columns=(*table.columns, "chosen by"), rows=rows)


def _chosen(member: "GroupManagerInfo") -> str:
    if member.assignment_method == "user_specified":
        return "name"
    return (
        f"tags: {', '.join(member.matched_tags)}" if member.matched_tags else "no tag is asked for"
    )


def refreshed_item(done: "RefreshedManagers") -> Item:
    """Return what a refresh changed; for --quiet, the ids of the hosts that were added."""
    fields = [
        ("added", _ids(done.added_managers)),
        ("removed", _ids(done.removed_managers)),
        ("added by name, kept", _ids(done.user_specified_kept)),
    ]
    return Item(done.model_dump(mode="json"), fields, "\n".join(map(str, done.added_managers)))


def _ids(ids: list[UUID]) -> str:
    return ", ".join(map(str, ids)) or "none"
