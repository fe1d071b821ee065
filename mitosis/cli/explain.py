"""`mitosis explain`: why a task group or a task waits, in one line from the server."""

from collections import Counter
from typing import TYPE_CHECKING

import typer

from mitosis.cli import plain_app
from mitosis.cli.arguments import AtOption, TargetArgument
from mitosis.cli.context import Cli
from mitosis.cli.registration import register
from mitosis.cli.rendering import Item
from mitosis.cli.task.find import split_target, task_of_group

if TYPE_CHECKING:
    from mitosis.contracts.explain import Explanation, HostReason

app = plain_app()


@register(app, "explain")
def explain(
    cli: Cli,
    target: TargetArgument,
    at: AtOption = None,
) -> None:
    """Explain why a task group or a task waits, runs or has ended, and the part of each host in it.

    With --json, `code` is a stable word for programs; --quiet prints only that word. Hosts have a command of
    their own: `mitosis manager explain`.
    """
    group, number = split_target(target)
    if number is not None and at is not None:
        raise typer.BadParameter("--at explains task groups, not tasks")
    with cli.client() as client:
        if number is None:
            explanation = client.explain(group, at=None if at is None else at.astimezone())
        else:
            explanation = client.explain_task(task_of_group(client, group, number).task_uuid)
    cli.output.item(explanation_item(explanation))


def explanation_item(explanation: "Explanation") -> Item:
    """Return the explanation first, then one line for each host."""
    name = explanation.task_group_name
    subject = name if explanation.task_id is None else f"{name}/{explanation.task_id}"
    named = Counter(host.manager_name for host in explanation.hosts)
    hosts = [
        ("host", f"{host.manager_name}{_which(host, named)}: {host.chain}")
        for host in explanation.hosts
    ]
    change = [("change", explanation.change)] if explanation.change else []
    fields = [("why", explanation.line), *change, ("of", subject), ("state", explanation.state)]
    fields += hosts
    return Item(explanation.model_dump(mode="json"), fields, explanation.code)


def _which(host: "HostReason", named: Counter[str]) -> str:
    """Return the id of a host that shares its name with another, in brackets."""
    return f" ({host.manager_id})" if named[host.manager_name] > 1 else ""
