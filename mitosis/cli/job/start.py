"""`mitosis job start` and `mitosis job rerun`: begin a run of a stored job, of a file, or of what failed."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import typer

from mitosis.cli.context import Cli
from mitosis.cli.exit import ExitStatus
from mitosis.cli.job.arguments import ParametersOption, parameters, read_job_file
from mitosis.cli.job.run_references import RunArgument, run_id_of
from mitosis.cli.references import check_job
from mitosis.contracts.errors import InvalidRequest

if TYPE_CHECKING:
    from mitosis.client.run_calls import RunOptions
    from mitosis.client.sync_job_run import SyncJobRun
    from mitosis.contracts.runs import RunView
    from mitosis.jobs.definition import JobDefinition

OPTION_OF_FIELD = {"name": "--name", "labels": "--label", "group_name": "--group"}
FILE_ENDINGS = (".yaml", ".yml", ".json")
VersionOption = Annotated[
    int | None, typer.Option(metavar="N", min=1, help="This version instead of the last one.")
]
WaitOption = Annotated[
    bool, typer.Option("--wait", help="Wait until the run has ended; the exit status says how.")
]
NameOption = Annotated[str | None, typer.Option(metavar="TEXT", help="Name, shown with the run.")]
LabelsOption = Annotated[
    list[str] | None, typer.Option("--label", metavar="TEXT", help="To find it by; repeatable.")
]


def start(
    cli: Cli,
    job: Annotated[
        str,
        typer.Argument(
            metavar="NAME|FILE",
            help="A stored job, as in `job show`; or a definition: a file that ends in .yaml, .yml or"
            " .json, begins with . or /, or - (stdin).",
        ),
    ],
    param: ParametersOption = None,
    version: VersionOption = None,
    name: NameOption = None,
    label: LabelsOption = None,
    group: Annotated[
        str | None, typer.Option(metavar="USERGROUP", help="User group of the run of a file.")
    ] = None,
    wait: WaitOption = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show steps, tasks and edges; start nothing.")
    ] = False,
) -> int:
    """Start a run of a stored job or of a file; `mitosis job watch @last` follows it.

    Exit status with --wait: 0 success, 10 the run has failed, 11 it was cancelled, 130 Ctrl-C, which
    only stops waiting.
    """
    from mitosis.cli.validation import named

    _check(job, version, group)
    file = as_file(job)
    options: RunOptions = {"name": name, "labels": tuple(label or ()), "group_name": group}
    if file is not None:
        definition = read_job_file(file)
        values = parameters(definition, param)
        if dry_run:
            return _show(cli, definition, values)
        with cli.client() as client, named(OPTION_OF_FIELD):
            return _started(cli, client.start_job(definition, values, **options), wait)
    from mitosis.jobs.reading import definition_of

    with cli.client() as client, named(OPTION_OF_FIELD):
        stored = client.job(job, version=version)
        definition = definition_of(stored.definition)
        values = parameters(definition, param)
        if dry_run:
            return _show(cli, definition, values)
        # the version whose parameters were read, also if another one is stored by now
        options["version"] = stored.version
        return _started(cli, client.start_job(stored.job_id, values, **options), wait)


def rerun(
    cli: Cli,
    run: RunArgument,
    failed: Annotated[
        bool,
        typer.Option(
            "--failed/--all",
            help="Take over the steps that have succeeded, with their results; or run all of them again.",
        ),
    ] = True,
    name: NameOption = None,
    wait: WaitOption = False,
) -> int:
    """Start a new run of what has not succeeded in an ended run, and of what comes after it.

    Exit status with --wait: as for `mitosis job start`.
    """
    from mitosis.cli.validation import named

    with cli.client() as client, named(OPTION_OF_FIELD):
        started = client.rerun(run_id_of(client, run), name=name, all_steps=not failed)
        return _started(cli, started, wait)


def as_file(job: str) -> Path | None:
    """Return the file that a word means; None: it is the name or id of a stored job."""
    is_file = job == "-" or job.startswith((".", "/")) or job.endswith(FILE_ENDINGS)
    return Path(job) if is_file else None


def _check(job: str, version: int | None, group: str | None) -> None:
    if as_file(job) is None:
        if group is not None:
            raise InvalidRequest(
                "belongs to a file; a stored job runs in its own user group, as in USERGROUP/NAME",
                option="--group",
            )
        check_job(job)
    elif version is not None:
        raise InvalidRequest("belongs to a stored job, not to a file", option="--version")


def _show(cli: Cli, definition: "JobDefinition", values: Mapping[str, Any]) -> int:
    from mitosis.cli.job.define import expansion_table, totals_text
    from mitosis.jobs.expansion import expand

    expansion = expand(definition, values)
    cli.output.table(expansion_table(expansion))
    cli.output.note(f"\n{totals_text(expansion)}")
    return ExitStatus.OK


def _started(cli: Cli, run: "SyncJobRun", wait: bool) -> int:
    import asyncio

    from mitosis.cli.job.run_view import OF_STATE, run_item

    if not wait:
        cli.output.item(run_item(run.info))
        cli.hint(f"follow it with: mitosis job watch {run.run_id}")
        return ExitStatus.OK
    try:
        ended = asyncio.run(_ended(cli, run.run_id))
    except KeyboardInterrupt:
        cli.hint(f"stopped waiting; the run continues. Follow it: mitosis job watch {run.run_id}")
        return ExitStatus.INTERRUPTED
    cli.output.item(run_item(ended))
    return OF_STATE[ended.state]


async def _ended(cli: Cli, run_id: UUID) -> "RunView":
    """Wait until a run has ended and return it."""
    from mitosis.cli.long_client import client_for_long
    from mitosis.cli.outages import Outages

    to = cli.target
    async with client_for_long(to.address, to.token, to.ca_file, Outages(cli.hint)) as client:
        return await (await client.run(run_id)).wait()
