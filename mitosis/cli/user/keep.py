"""`mitosis user keep`: how long the settled task groups of a user group are kept."""

from typing import TYPE_CHECKING, Annotated

import typer

from mitosis.cli.context import Cli
from mitosis.cli.rendering import Item, span_text

if TYPE_CHECKING:
    from mitosis.contracts.retention import UserGroupRetention

FOR_EVER, DEFAULT = "forever", "default"
FIELDS = {"keep": "TIME", "group_name": "USERGROUP"}


def keep(
    cli: Cli,
    user_group: Annotated[str, typer.Argument(metavar="USERGROUP", help="Name of the user group.")],
    time: Annotated[
        str | None,
        typer.Argument(
            metavar="[TIME|forever|default]",
            help="From its settlement on, as in 30d; default: as the deployment says.",
        ),
    ] = None,
) -> None:
    """Set how long the settled task groups of a user group are kept; without a time, show it.

    Tasks, results and output are deleted with their task group, at most an hour late. Setting it needs the
    role admin in the user group.
    """
    from mitosis.cli.validation import duration, named

    with named(FIELDS), cli.client() as client:
        if time is None:
            found = client.kept_task_groups(user_group)
        else:
            span = None if time in (FOR_EVER, DEFAULT) else duration(time, "TIME")
            found = client.keep_task_groups(user_group, span, for_ever=time == FOR_EVER)
    cli.output.item(_item(found))


def _item(found: "UserGroupRetention") -> Item:
    fields = [("user group", found.group_name), ("settled task groups", _shown(found))]
    return Item(found.model_dump(mode="json"), fields, found.group_name)


def _shown(found: "UserGroupRetention") -> str:
    if found.for_ever:
        return "are kept until a user deletes them"
    if found.keep_seconds is not None:
        return f"are deleted {span_text(found.keep_seconds)} after they have settled"
    if found.deployment_keep_seconds is None:
        return "are kept until a user deletes them, as the deployment says"
    after = span_text(found.deployment_keep_seconds)
    return f"are deleted {after} after they have settled, as the deployment says"
