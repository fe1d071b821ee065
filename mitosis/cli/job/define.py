"""`mitosis job define`: stores a definition as the next version of its job, or shows what it comes to."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from mitosis.cli.context import Cli
from mitosis.cli.job.arguments import FileArgument, ParametersOption, parameters, read_job_file
from mitosis.cli.job.stored import job_item
from mitosis.cli.rendering import Table
from mitosis.contracts.errors import InvalidRequest

if TYPE_CHECKING:
    from mitosis.jobs.expansion import ExpandedStep, Expansion


def define(
    cli: Cli,
    file: FileArgument,
    param: ParametersOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show steps, tasks, edges and counts; store nothing.")
    ] = False,
    group: Annotated[
        str | None, typer.Option(metavar="USERGROUP", help="User group that owns the job.")
    ] = None,
) -> None:
    """Store a definition as the next version of the job of its name; the same as the last one adds none.

    With --dry-run, show its steps, tasks and edges with these parameters instead.
    """
    from mitosis.jobs.expansion import expand

    definition = read_job_file(file)
    if not dry_run:
        if param:
            raise InvalidRequest("belongs to --dry-run and to a run of the job", option="-p")
        with cli.client() as client:
            stored = client.define_job(definition, group_name=group)
        cli.output.item(job_item(stored))
        if not stored.created:
            cli.hint(f"version {stored.version} is the same; nothing was stored")
        return
    expansion = expand(definition, parameters(definition, param))
    cli.output.table(expansion_table(expansion))
    cli.output.note(f"\n{totals_text(expansion)}")


def expansion_table(expansion: "Expansion") -> Table:
    """Return the steps in their order."""
    columns = ("step", "layer", "tasks", "runs", "group", "after", "when")
    return Table(
        data=expansion_data(expansion),
        columns=columns,
        rows=[
            (
                one.name,
                str(one.layer + 1),
                tasks_text(one),
                one.executor,
                one.group,
                ", ".join(f"{name}: {outcome}" for name, outcome in one.after),
                one.when or "",
            )
            for one in expansion.steps
        ],
        ids=[one.name for one in expansion.steps],
        empty="no steps",
    )


def expansion_data(expansion: "Expansion") -> dict[str, Any]:
    """Return the expansion as JSON values."""
    return {
        "parameters": expansion.parameters,
        "steps": [
            {
                "name": one.name,
                "layer": one.layer,
                "tasks": one.tasks,
                "tasks_from": one.tasks_from,
                "executor": one.executor,
                "group": one.group,
                "after": dict(one.after),
                "when": one.when,
                "task_edges": one.task_edges,
            }
            for one in expansion.steps
        ],
        "tasks": expansion.known_tasks,
        "is_complete": expansion.is_complete,
        "step_edges": expansion.step_edges,
        "task_edges": expansion.task_edges,
    }


def tasks_text(step: "ExpandedStep") -> str:
    """Return the number of tasks, or what decides it."""
    return str(step.tasks) if step.tasks is not None else f"as in {step.tasks_from}"


def totals_text(expansion: "Expansion") -> str:
    """Return the sums in one sentence."""
    least = "" if expansion.is_complete else "at least "
    edges = f"{expansion.step_edges} edges between steps, {expansion.task_edges} between tasks"
    return f"{len(expansion.steps)} steps, {least}{expansion.known_tasks} tasks; {edges}"
