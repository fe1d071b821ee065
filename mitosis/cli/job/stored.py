"""`mitosis job list | show | versions | delete`: the jobs that are stored."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from mitosis.cli.arguments import LimitOption
from mitosis.cli.context import Cli
from mitosis.cli.job.run_references import LAST, as_id, run_id_of
from mitosis.cli.references import check_job
from mitosis.cli.rendering import Item, Table, time_text
from mitosis.contracts.errors import NotFound

if TYPE_CHECKING:
    from mitosis.client.sync import SyncClient
    from mitosis.contracts.jobs import JobInfo, JobVersion
    from mitosis.contracts.runs import RunView

JobArgument = Annotated[
    str,
    typer.Argument(
        metavar="JOB", help="Id, NAME or USERGROUP/NAME of the job.", callback=check_job
    ),
]


def check_job_or_run(text: str) -> str:
    """Return a reference to a job or a run if it is well-formed.

    Raises:
        InvalidRequest: it is none.
    """
    return text if text == LAST else check_job(text)


JobOrRunArgument = Annotated[
    str,
    typer.Argument(
        metavar="JOB|RUN",
        help="Id, NAME or USERGROUP/NAME of a job; or a run: its id, or "
        f"{LAST}, the last one that you started.",
        callback=check_job_or_run,
    ),
]


def list_jobs(cli: Cli, limit: LimitOption = None) -> None:
    """List the jobs of your user groups, each with its last version."""
    with cli.client() as client:
        cli.output.table(jobs_table(cli.take(client.jobs(), limit)))


def show(
    cli: Cli,
    job: JobOrRunArgument,
    version: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="This version instead of the last one.")
    ] = None,
) -> None:
    """Show a run with its steps; or one version of a job, with its definition."""
    with cli.client() as client:
        run = None if version is not None else _run(client, job)
        if run is not None:
            _show_run(cli, run)
            return
        found = client.job(job, version=version)
    from mitosis.jobs.yaml_text import write_yaml

    cli.output.item(job_item(found))
    cli.output.note("\n" + write_yaml(found.definition).rstrip())


def _run(client: "SyncClient", reference: str) -> "RunView | None":
    """Return the run, or None if this is something else: a name, or the id of a job."""
    if reference == LAST:
        return client.run_view(run_id_of(client, LAST))
    run_id = as_id(reference)
    try:
        return None if run_id is None else client.run_view(run_id)
    except NotFound:
        return None


def _show_run(cli: Cli, run: "RunView") -> None:
    from mitosis.cli.follow.display import now
    from mitosis.cli.job.run_tree import Rates, tree_lines
    from mitosis.cli.job.run_view import run_item

    cli.output.item(run_item(run))
    cli.output.note("\n" + "\n".join(tree_lines(run, Rates(), now())))


def versions(cli: Cli, job: JobArgument, limit: LimitOption = None) -> None:
    """List the versions of a job, the last one first."""
    with cli.client() as client:
        cli.output.table(jobs_table(cli.take(client.job_versions(job), limit)))


def delete(cli: Cli, job: JobOrRunArgument) -> None:
    """Delete a job with all its versions; or an ended run, with its own task groups, tasks and results."""
    with cli.client() as client:
        run = _run(client, job)
        if run is None:
            client.delete_job(job)
        else:
            client.delete_run(run.run_id)
    deleted = job if run is None else str(run.run_id)
    cli.output.item(Item({"deleted": deleted}, [("deleted", deleted)], deleted))


def jobs_table(jobs: "Sequence[JobInfo]") -> Table:
    return Table(
        data=[one.model_dump(mode="json") for one in jobs],
        columns=("job", "user group", "version", "stored by", "stored", "digest"),
        rows=[
            (
                one.name,
                one.group_name,
                str(one.version),
                one.created_by,
                time_text(one.created_at),
                one.digest[:12],
            )
            for one in jobs
        ],
        ids=[f"{one.group_name}/{one.name}" for one in jobs],
        empty="no jobs (store one with: mitosis job define FILE)",
    )


def job_item(one: "JobVersion") -> Item:
    fields = [
        ("job", one.name),
        ("id", str(one.job_id)),
        ("user group", one.group_name),
        ("version", str(one.version)),
        ("digest", one.digest),
        ("stored by", one.created_by),
        ("stored", time_text(one.created_at)),
    ]
    return Item(one.model_dump(mode="json"), fields, f"{one.group_name}/{one.name}")
