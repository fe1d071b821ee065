"""`mitosis job schedule …`: runs of jobs by time."""

import time
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import typer

from mitosis.cli import plain_app
from mitosis.cli.arguments import LimitOption
from mitosis.cli.context import Cli
from mitosis.cli.exit import ExitStatus
from mitosis.cli.job.arguments import ParametersOption, parameters
from mitosis.cli.job.schedule_options import OPTION_OF_FIELD, TimingOptions, moment
from mitosis.cli.references import check_job, check_schedule
from mitosis.cli.registration import register
from mitosis.cli.rendering import Item
from mitosis.contracts.overlap import Overlap

if TYPE_CHECKING:
    from mitosis.client.sync import SyncClient
    from mitosis.contracts.schedules import ScheduleInfo

APPEARS_WITHIN_SECONDS = 10.0
LOOK_SECONDS, MOST_LOOK_SECONDS = 0.1, 2.0
"""Between looks for a run: at first, and later."""
MOST_DIGITS = 10

app = plain_app()

ScheduleArgument = Annotated[
    str,
    typer.Argument(
        metavar="SCHEDULE",
        help="Id, NAME or USERGROUP/NAME of the schedule.",
        callback=check_schedule,
    ),
]
OverlapOption = Annotated[
    Overlap | None, typer.Option(help="While a run of it has not ended. [default: skip]")
]
VersionOption = Annotated[
    str | None,
    typer.Option(
        metavar="N|latest",
        help="This version of the job, or the last one at each time, if you have stored it."
        " [default: the last one now]",
    ),
]
LabelsOption = Annotated[
    list[str] | None, typer.Option("--label", metavar="TEXT", help="Of its runs; repeatable.")
]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Show it with its next times; store nothing.")
]
NoteOption = Annotated[
    str | None, typer.Option(metavar="TEXT", help="Shown with it, also in the Temporal Web UI.")
]


@app.callback()
def schedule() -> None:
    """Start runs of stored jobs by time: cron, interval or calendar."""


@register(app, "create")
def create(
    cli: Cli,
    job: Annotated[
        str,
        typer.Argument(
            metavar="JOB", help="Id, NAME or USERGROUP/NAME of a stored job.", callback=check_job
        ),
    ],
    timing: TimingOptions,
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="Of the schedule. [default: the job's]")
    ] = None,
    param: ParametersOption = None,
    overlap: OverlapOption = None,
    version: VersionOption = None,
    label: LabelsOption = None,
    paused: Annotated[bool, typer.Option("--paused", help="Start no runs until resumed.")] = False,
    dry_run: DryRunOption = False,
) -> None:
    """Start runs of a stored job by time. The next five times are shown before anything is stored.

    Values of -p may name the time: {{ run.nominal_date }}, {{ run.nominal_time }}.
    """
    from mitosis.cli.validation import named

    fields: dict[str, Any] = timing.fields() | _given(version=_version(version))
    with cli.client() as client, named(OPTION_OF_FIELD):
        fields |= _given(name=name, overlap=overlap, labels=label and tuple(label))
        if paused:
            fields["paused"] = True
        if param:
            fields["parameters"] = _parameters(client, job, fields.get("version"), param)
        planned = client.create_schedule(job, **fields, dry_run=True)
        if dry_run:
            _show(cli, planned)
            return
        _hint_times(cli, planned)
        _show(cli, client.create_schedule(job, **fields))


@register(app, "list")
def list_schedules(
    cli: Cli,
    job: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only schedules of jobs with this name.")
    ] = None,
    group: Annotated[
        str | None, typer.Option(metavar="USERGROUP", help="Only schedules of this user group.")
    ] = None,
    limit: LimitOption = None,
) -> None:
    """List the schedules of your user groups."""
    from mitosis.cli.job.schedule_view import schedules_table

    with cli.client() as client:
        found = client.schedules(job=job, group_name=group)
        cli.output.table(schedules_table(cli.take(found, limit)))


@register(app, "show")
def show(cli: Cli, schedule: ScheduleArgument) -> None:
    """Show a schedule with its next five times."""
    with cli.client() as client:
        _show(cli, client.schedule(schedule))


@register(app, "update")
def update(
    cli: Cli,
    schedule: ScheduleArgument,
    timing: TimingOptions,
    param: ParametersOption = None,
    overlap: OverlapOption = None,
    version: VersionOption = None,
    accept: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            max=2**31 - 1,
            help="With --version latest: run versions up to this one with your rights, also those that"
            " others have stored.",
        ),
    ] = None,
    label: LabelsOption = None,
    dry_run: DryRunOption = False,
) -> None:
    """Change what is given of a schedule; -p replaces all parameters. Its runs have your rights then."""
    from mitosis.cli.validation import named

    timing.fields()  # refuses what is wrong before a connection is made
    chosen = _given(version=_version(version), accepted_version=accept)
    with cli.client() as client, named(OPTION_OF_FIELD):
        before = client.schedule(schedule)
        fields = timing.fields(before.time_zone) | chosen | {"revision": before.revision}
        fields |= _given(overlap=overlap, labels=label and tuple(label))
        if param:
            job = f"{before.group_name}/{before.job_name}"
            number = fields.get("version", before.version)
            fields["parameters"] = _parameters(client, job, number, param)
        planned = client.update_schedule(before.schedule_id, **fields, dry_run=True)
        if dry_run:
            _show(cli, planned)
            return
        _hint_times(cli, planned)
        changed = client.update_schedule(before.schedule_id, **fields)
        _show(cli, changed)
        if changed.owner != before.owner:
            cli.hint(
                f"you own the schedule now: its runs have your rights, not those of {before.owner}"
            )


@register(app, "pause")
def pause(
    cli: Cli,
    schedule: ScheduleArgument,
    note: NoteOption = None,
    drop: Annotated[
        bool,
        typer.Option("--drop", help="End what waits to start; else it waits for the resume."),
    ] = False,
) -> None:
    """Start no runs at its times, nor of backfills, until resumed. Times that pass are not made up for."""
    with cli.client() as client:
        _show(cli, client.pause_schedule(schedule, note, drop=drop))


@register(app, "resume")
def resume(cli: Cli, schedule: ScheduleArgument, note: NoteOption = None) -> None:
    """Start runs at its times again, from now on, and those that have waited."""
    with cli.client() as client:
        _show(cli, client.resume_schedule(schedule, note))


@register(app, "trigger")
def trigger(cli: Cli, schedule: ScheduleArgument, overlap: OverlapOption = None) -> int:
    """Start a run now, also of a paused schedule."""
    from mitosis.cli.job.run_view import run_item

    with cli.client() as client:
        found = client.schedule(schedule)
        asked = client.trigger_schedule(found.schedule_id, overlap)
        run_id, reason = _appeared(client, found, asked.nominal_time)
        if run_id is not None:
            cli.output.item(run_item(client.run_view(run_id)))
            cli.hint(f"follow it with: mitosis job watch {run_id}")
            return ExitStatus.OK
    when = asked.nominal_time.isoformat()
    name = f"{found.group_name}/{found.name}"
    fields = [("asked for", when), ("schedule", name), ("no run", reason or "not yet")]
    data = {**asked.model_dump(mode="json"), "reason": reason}
    cli.output.item(Item(data, fields, when))
    if reason is None:
        cli.hint(
            f"no run after {APPEARS_WITHIN_SECONDS:g} s: another one has not ended"
            f" ({found.overlap}), or no control worker runs; see `mitosis job schedule show {name}`"
        )
    return ExitStatus.OK


@register(app, "backfill")
def backfill(
    cli: Cli,
    schedule: ScheduleArgument,
    first: Annotated[
        str, typer.Argument(metavar="FROM", help="As in 2026-11-28, in the zone of the schedule.")
    ],
    last: Annotated[str, typer.Argument(metavar="TO", help="The last time that may count.")],
    overlap: Annotated[
        Overlap,
        typer.Option(help="buffer_all: one run after the other; allow_all: all at once."),
    ] = Overlap.BUFFER_ALL,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the times only.")] = False,
) -> None:
    """Start the runs of past times, both ends included. A time that has a run gets no second one."""
    from mitosis.cli.job.schedule_view import backfill_table
    from mitosis.cli.validation import named

    with cli.client() as client, named(OPTION_OF_FIELD):
        found = client.schedule(schedule)
        start, end = (
            moment(text, found.time_zone, option)
            for text, option in ((first, "FROM"), (last, "TO"))
        )
        assert start is not None, "FROM is required"  # noqa: S101
        assert end is not None, "TO is required"  # noqa: S101
        answer = client.backfill_schedule(
            found.schedule_id, start, end, overlap=overlap, dry_run=dry_run
        )
    cli.output.table(backfill_table(answer))


@register(app, "delete")
def delete(cli: Cli, schedule: ScheduleArgument) -> None:
    """Delete a schedule. Its runs stay, and running ones go on."""
    with cli.client() as client:
        client.delete_schedule(schedule)
    cli.output.item(Item({"deleted": schedule}, [("deleted", schedule)], schedule))


def _given(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _version(text: str | None) -> int | str | None:
    from mitosis.cli.validation import value_of
    from mitosis.contracts.schedules import Version

    if text is None:
        return None
    is_number = text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS
    found: int | str = value_of(Version, int(text) if is_number else text, "--version")
    return found


def _parameters(
    client: "SyncClient", job: str, version: int | str | None, given: list[str]
) -> dict[str, Any]:
    from mitosis.jobs.reading import definition_of

    number = version if isinstance(version, int) else None
    return parameters(definition_of(client.job(job, version=number).definition), given)


def _show(cli: Cli, one: "ScheduleInfo") -> None:
    from mitosis.cli.job.schedule_view import schedule_item

    cli.output.item(schedule_item(one))


def _hint_times(cli: Cli, planned: "ScheduleInfo") -> None:
    from mitosis.cli.job.schedule_view import times_text

    if planned.next_times:
        cli.hint(f"next times:\n{times_text(planned.next_times)}")


def _appeared(
    client: "SyncClient", found: "ScheduleInfo", nominal_time: Any
) -> tuple[UUID | None, str | None]:
    """Return the run that was asked for as soon as it is there, or why there is none."""
    from mitosis.retry_policy import Backoff, RetryPolicy

    looks = Backoff(RetryPolicy(first_seconds=LOOK_SECONDS, longest_seconds=MOST_LOOK_SECONDS))
    until = time.monotonic() + APPEARS_WITHIN_SECONDS
    while True:
        for one in client.runs(schedule=f"{found.group_name}/{found.name}"):
            if one.nominal_time == nominal_time:
                return one.run_id, None
            if one.created_at < nominal_time:
                break
        without = client.schedule(found.schedule_id).without_run
        if without is not None and without.nominal_time == nominal_time:
            return None, without.reason
        if time.monotonic() > until:
            return None, None
        time.sleep(looks.next_pause())
