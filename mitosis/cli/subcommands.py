"""The subcommands of ``mitosis``: where each is, and its line in ``mitosis --help``.

The help is printed from this table, so that it imports no subcommand.
"""

from collections.abc import Mapping
from typing import NamedTuple


class Subcommand(NamedTuple):
    """One row: ``module:attribute`` of a function or a typer application, and the summary of its help."""

    place: str
    summary: str


COMMANDS: Mapping[str, Subcommand] = {
    "demo": Subcommand(
        "mitosis.cli.stack.demo:demo",
        "Start a temporary stack, compress and checksum the standard library on it, and verify the results.",
    ),
    "up": Subcommand(
        "mitosis.cli.stack.services:up",
        "Run everything on this host until Ctrl-C: PostgreSQL, Temporal, API, control worker, agent.",
    ),
    "run": Subcommand(
        "mitosis.cli.run.command:app",
        "Run a command over many inputs: ::: values, a file, a pipe, a range, JSON or CSV.",
    ),
    "watch": Subcommand(
        "mitosis.cli.watch:app",
        "Follow a task group until it is settled, then show its failures by reason, as `mitosis run` does.",
    ),
    "logs": Subcommand(
        "mitosis.cli.logs.command:app",
        "Print the output of tasks, one after the other; with -f, print it live until they end.",
    ),
    "retry": Subcommand(
        "mitosis.cli.retry:app",
        "Submit the failed tasks of a task group again.",
    ),
    "explain": Subcommand(
        "mitosis.cli.explain:app",
        "Explain why a task group or a task waits, runs or has ended, and the part of each host in it.",
    ),
    "job": Subcommand(
        "mitosis.cli.job.commands:app",
        "Define, start and follow jobs: steps of tasks with an order and parameters.",
    ),
    "group": Subcommand(
        "mitosis.cli.group.commands:app",
        "Create, fill, watch and end task groups.",
    ),
    "template": Subcommand(
        "mitosis.cli.template.commands:app",
        "Save task groups as templates; `mitosis group create --template` uses them.",
    ),
    "task": Subcommand(
        "mitosis.cli.task.commands:app",
        "Look at single tasks, or cancel them.",
    ),
    "manager": Subcommand(
        "mitosis.cli.manager.commands:app",
        "Manage the hosts that run tasks.",
    ),
    "worker": Subcommand(
        "mitosis.cli.worker.commands:app",
        "Run a worker service, which executes named tasks, until SIGTERM; or look at them with a command.",
    ),
    "handlers": Subcommand(
        "mitosis.cli.handlers.commands:app",
        "Look at the named tasks that worker services support.",
    ),
    "simulate": Subcommand(
        "mitosis.cli.simulate.command:app",
        "Simulate scheduling policies on a mixed or recorded workload, and compare what they come to.",
    ),
    "login": Subcommand(
        "mitosis.cli.account:login",
        "Get a token with a password.",
    ),
    "logout": Subcommand(
        "mitosis.cli.account:logout",
        "Delete the token that a login stored for this API address.",
    ),
    "whoami": Subcommand(
        "mitosis.cli.account:whoami",
        "Show the user of the token.",
    ),
    "user": Subcommand(
        "mitosis.cli.user.commands:app",
        "Make, lock and list accounts, set passwords, and say how long task groups are kept.",
    ),
    "token": Subcommand(
        "mitosis.cli.token.commands:app",
        "List who has valid tokens, and revoke them.",
    ),
    "config": Subcommand(
        "mitosis.cli.config:app",
        "Show the settings of this host.",
    ),
    "ui": Subcommand(
        "mitosis.cli.temporal_ui:ui",
        "Get a link to the Temporal Web UI, which opens once.",
    ),
    "temporal": Subcommand(
        "mitosis.cli.temporal:app",
        "Run the bundled Temporal CLI.",
    ),
    "doctor": Subcommand(
        "mitosis.cli.doctor.command:doctor",
        "Check this host and the servers.",
    ),
    "api": Subcommand(
        "mitosis.cli.stack.services:api",
        "Run only the HTTP API; the settings name PostgreSQL and Temporal.",
    ),
    "control": Subcommand(
        "mitosis.cli.stack.services:control",
        "Run only a control worker: workflows, database activities, outbox relay, reconcile.",
    ),
    "agent": Subcommand(
        "mitosis.cli.stack.agent:agent",
        "Run the agent of this host until SIGTERM; it finds the API as every command does.",
    ),
    "migrate": Subcommand(
        "mitosis.cli.stack.services:migrate",
        "Bring the database of MITOSIS_DATABASE_URL to the schema of this version.",
    ),
}
"""In the order of the help."""

FORMER_COMMANDS: Mapping[str, str] = {}
"""Names of subcommands in the version before: accepted and not shown, unless another one has the name now."""
