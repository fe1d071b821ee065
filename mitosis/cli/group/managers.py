"""`mitosis group managers`: lists and changes the hosts that may serve a task group."""

from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from mitosis.cli.arguments import GroupArgument
from mitosis.cli.context import Cli
from mitosis.cli.manager.find import find_manager
from mitosis.cli.manager.view import managers_table
from mitosis.cli.rendering import Item

if TYPE_CHECKING:
    from mitosis.contracts.http import RefreshedManagers


def managers(
    cli: Cli,
    group: GroupArgument,
    add: Annotated[
        list[str] | None,
        typer.Option(metavar="HOST", help="Add this host to the list; repeatable."),
    ] = None,
    remove: Annotated[
        list[str] | None,
        typer.Option(metavar="HOST", help="Remove this host from the list; repeatable."),
    ] = None,
    refresh: Annotated[
        bool, typer.Option("--refresh", help="Match hosts to the tags again and show what changed.")
    ] = False,
) -> None:
    """List the hosts of a task group: those that its tags matched, and those added by name.

    Only --refresh matches the tags; a change of tags does not change the list. The order is --add,
    --remove, --refresh.
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
            cli.output.table(managers_table(client.group_managers(group)))


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
