"""`mitosis explain`: why a group or a task waits, in one line; the line comes from the server."""

from collections import Counter
from typing import TYPE_CHECKING, Annotated

import typer

from mitosis.cli import plain_app
from mitosis.cli.completion import groups_and_tasks
from mitosis.cli.context import Cli
from mitosis.cli.registration import register
from mitosis.cli.rendering import Item
from mitosis.cli.task.commands import split_target, task_of_group

if TYPE_CHECKING:
    from mitosis.contracts.explain import Explanation, HostReason

app = plain_app()


@register(app, "explain")
def explain(
    cli: Cli,
    target: Annotated[
        str,
        typer.Argument(
            metavar="GROUP[/TASK]",
            help="A group, or one of its tasks by number or UUID, as in render/17.",
            autocompletion=groups_and_tasks,
        ),
    ],
) -> None:
    """Say why a group or a task waits, or that it runs or has ended, and what each host has to do with it.

    With --json `code` is a stable word for programs; --quiet prints that word alone.
    """
    group, number = split_target(target)
    with cli.client() as client:
        if number is None:
            explanation = client.explain(group)
        else:
            explanation = client.explain_task(task_of_group(client, group, number).task_uuid)
    cli.output.item(explanation_item(explanation))


def explanation_item(explanation: "Explanation") -> Item:
    """The line first, then a line for each host."""
    name = explanation.task_group_name
    subject = name if explanation.task_id is None else f"{name}/{explanation.task_id}"
    named = Counter(host.manager_name for host in explanation.hosts)
    hosts = [
        ("host", f"{host.manager_name}{_which(host, named)}: {host.line}")
        for host in explanation.hosts
    ]
    fields = [("why", explanation.line), ("of", subject), ("state", explanation.state), *hosts]
    return Item(explanation.model_dump(mode="json"), fields, explanation.code)


def _which(host: "HostReason", named: Counter[str]) -> str:
    """The id of a host that shares its name with another."""
    return f" ({host.manager_id})" if named[host.manager_name] > 1 else ""
