"""`mitosis job list | show | versions | delete`: the jobs that are stored."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from mitosis.cli.arguments import LimitOption
from mitosis.cli.context import Cli
from mitosis.cli.references import check_reference
from mitosis.cli.rendering import Item, Table, time_text

if TYPE_CHECKING:
    from mitosis.contracts.jobs import JobInfo, JobVersion

JobArgument = Annotated[
    str,
    typer.Argument(
        metavar="JOB", help="Id, NAME or USERGROUP/NAME of the job.", callback=check_reference
    ),
]


def list_jobs(cli: Cli, limit: LimitOption = None) -> None:
    """List the jobs of your user groups, each with its last version."""
    with cli.client() as client:
        cli.output.table(jobs_table(cli.take(client.jobs(), limit)))


def show(
    cli: Cli,
    job: JobArgument,
    version: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="This version instead of the last one.")
    ] = None,
) -> None:
    """Show one version of a job, with its definition."""
    from mitosis.jobs.yaml_text import write_yaml

    with cli.client() as client:
        found = client.job(job, version=version)
    cli.output.item(job_item(found))
    cli.output.note("\n" + write_yaml(found.definition).rstrip())


def versions(cli: Cli, job: JobArgument, limit: LimitOption = None) -> None:
    """List the versions of a job, the last one first."""
    with cli.client() as client:
        cli.output.table(jobs_table(cli.take(client.job_versions(job), limit)))


def delete(cli: Cli, job: JobArgument) -> None:
    """Delete a job with all its versions."""
    with cli.client() as client:
        client.delete_job(job)
    cli.output.item(Item({"deleted": job}, [("deleted", job)], job))


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
