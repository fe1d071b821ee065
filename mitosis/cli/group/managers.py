"""`mitosis group managers`: the list of hosts of a task group, and the ways to change it."""

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
        typer.Option(metavar="MANAGER", help="Name this manager for it; may be repeated."),
    ] = None,
    remove: Annotated[
        list[str] | None,
        typer.Option(metavar="MANAGER", help="Take this one off the list; may be repeated."),
    ] = None,
    refresh: Annotated[
        bool, typer.Option("--refresh", help="Match managers to the tags again; say what changed.")
    ] = False,
) -> None:
    """List the managers of a group: those its tags matched, and those that somebody named.

    The tags are matched by --refresh only; new tags alone change no list. First --add, then
    --remove, then --refresh.
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
    """What a refresh changed; quiet: the ids of the managers that came."""
    fields = [
        ("added", _ids(done.added_managers)),
        ("removed", _ids(done.removed_managers)),
        ("named, kept", _ids(done.user_specified_kept)),
    ]
    return Item(done.model_dump(mode="json"), fields, "\n".join(map(str, done.added_managers)))


def _ids(ids: list[UUID]) -> str:
    return ", ".join(map(str, ids)) or "none"
