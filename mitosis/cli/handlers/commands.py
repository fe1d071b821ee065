"""`mitosis handlers …`: lists named tasks, and those that no worker service can execute now."""

from mitosis.cli import plain_app
from mitosis.cli.arguments import LimitOption
from mitosis.cli.context import Cli
from mitosis.cli.registration import register
from mitosis.cli.worker.view import named_tasks_table

app = plain_app()


@app.callback()
def handlers() -> None:
    """Look at the named tasks that worker services support."""


@register(app, "list")
def list_handlers(cli: Cli, limit: LimitOption = None) -> None:
    """List named tasks with the worker services that can execute them now."""
    with cli.client() as client:
        cli.output.table(named_tasks_table(cli.take(client.named_tasks(), limit), "no named tasks"))


@register(app, "gaps")
def gaps(cli: Cli, limit: LimitOption = None) -> None:
    """List the named tasks that no worker service can execute now."""
    with cli.client() as client:
        found = cli.take(client.named_tasks(available="none"), limit)
    cli.output.table(named_tasks_table(found, "no gaps"))
