"""Verbs on one host: explain, drain, resume, retag, rename, delete."""

from collections.abc import Callable
from typing import Annotated, Any

import typer

from mitosis.cli.arguments import AtOption
from mitosis.cli.context import Cli
from mitosis.cli.exit import ExitStatus
from mitosis.cli.manager.find import find_manager
from mitosis.cli.manager.view import explained_item, manager_item
from mitosis.cli.rendering import Item
from mitosis.contracts.errors import Conflict, InvalidRequest

HostArgument = Annotated[str, typer.Argument(metavar="HOST", help="Id or name of the host.")]
OPTION_OF_FIELD = {
    "name": "NAME",
    "tags": "--tag",
    "labels": "--label",
    "reason": "--reason",
}


def drain(
    cli: Cli,
    manager: HostArgument,
    now: Annotated[
        bool, typer.Option("--now", help="Give back the tasks that have not started.")
    ] = False,
    reason: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Reason, shown with the host.")
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until nothing runs or is left to clean up.")
    ] = False,
    timeout: Annotated[
        str | None, typer.Option(metavar="TIME", help="Wait at most this long, as in 30m.")
    ] = None,
) -> int:
    """Take a host out of service: it finishes its tasks, takes no new ones, and cleans up.

    `mitosis manager resume` takes it into service again. Exit status with --wait: 0 it is empty,
    124 --timeout ran out.
    """
    from mitosis.cli.validation import duration, named

    limit = duration(timeout, "--timeout")
    if limit is not None and not wait:
        raise InvalidRequest("waits only with --wait", option="--timeout")
    with named(OPTION_OF_FIELD), cli.client() as client:
        host = find_manager(client, manager)
        info = client.drain_manager(host.manager_id, now=now, reason=reason)
        if wait:
            info = client.wait_until_empty(host.manager_id, timeout=limit)
    cli.output.item(manager_item(info))
    if not wait or (info.drain is not None and info.drain.empty):
        return ExitStatus.OK
    if info.drain is None:
        raise Conflict(f"{info.name} was resumed by another caller while it was drained")
    cli.hint(f"not empty after {timeout}: it waits for {'; '.join(info.drain.waits_for)}")
    return ExitStatus.TIMED_OUT


def explain(cli: Cli, manager: HostArgument, at: AtOption = None) -> None:
    """Explain what a host does, and what keeps it from each task group that has work.

    `change` is the smallest change after which it would serve one. With --json, `code` is a stable word for
    programs; --quiet prints only that word.
    """
    with cli.client() as client:
        host = find_manager(client, manager)
        when = None if at is None else at.astimezone()
        explanation = client.explain_manager(host.manager_id, at=when)
    cli.output.item(explained_item(explanation))


def resume(cli: Cli, manager: HostArgument) -> None:
    """Take a drained host into service again."""
    with cli.client() as client:
        host = find_manager(client, manager)
        cli.output.item(manager_item(client.resume_manager(host.manager_id)))


def retag(
    cli: Cli,
    manager: HostArgument,
    tag: Annotated[
        list[str] | None, typer.Option(help="A tag of the host; repeatable. All others go.")
    ] = None,
    label: Annotated[
        list[str] | None, typer.Option(help="A label; repeatable. All others go.")
    ] = None,
    no_tags: Annotated[bool, typer.Option("--no-tags", help="Remove all tags.")] = False,
) -> None:
    """Replace the tags of a host, or its labels.

    Task groups follow at their next `mitosis group managers --refresh`.
    """
    from mitosis.cli.validation import named, validated
    from mitosis.contracts.manager_verbs import ManagerUpdate

    if no_tags and tag:
        raise InvalidRequest("give --tag or --no-tags, not both", option="--no-tags")
    given: dict[str, Any] = {"tags": [] if no_tags else tag or None, "labels": label or None}
    values = {key: value for key, value in given.items() if value is not None}
    if not values:
        raise InvalidRequest("give at least one --tag or --label, or --no-tags", option="--tag")
    changes = validated(ManagerUpdate, values, OPTION_OF_FIELD)
    with named(OPTION_OF_FIELD), cli.client() as client:
        host = find_manager(client, manager)
        changed = client.update_manager(host.manager_id, tags=changes.tags, labels=changes.labels)
        cli.output.item(manager_item(changed))


def rename(
    cli: Cli,
    manager: HostArgument,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The new name.")],
) -> None:
    """Give a host another name, which no other host of its user groups has."""
    from mitosis.cli.validation import named, validated
    from mitosis.contracts.manager_verbs import ManagerUpdate

    validated(ManagerUpdate, {"name": name}, OPTION_OF_FIELD)
    with named(OPTION_OF_FIELD), cli.client() as client:
        host = find_manager(client, manager)
        cli.output.item(manager_item(client.update_manager(host.manager_id, name=name)))


def delete(
    cli: Cli,
    manager: HostArgument,
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Forget what it has to clean up: its machine no longer exists."
        ),
    ] = False,
) -> None:
    """Delete a host that is drained, or that never worked. Its token is refused from then on."""
    with cli.client() as client:
        host = find_manager(client, manager)
        client.delete_manager(host.manager_id, force=force)
    cli.output.item(Item({"deleted": host.name}, [("deleted", host.name)], host.name))


COMMANDS: dict[str, Callable[..., Any]] = {
    "explain": explain,
    "drain": drain,
    "resume": resume,
    "retag": retag,
    "rename": rename,
    "delete": delete,
}
