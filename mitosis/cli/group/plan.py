"""`mitosis group plan`: a dry run: what hosts would do for a task group, and when it would begin and end."""

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mitosis.cli.context import Cli
from mitosis.cli.group.create import merged, option_names, typed_fields
from mitosis.cli.group.options import GroupOptions
from mitosis.cli.input_files import read_json_object
from mitosis.cli.rendering import Item, span_text, time_text

if TYPE_CHECKING:
    from mitosis.contracts.plans import PlanInfo, SpanBand, TimeBand

UNNAMED = "plan"
"""The name of a task group that has none yet."""


def plan(
    cli: Cli,
    options: GroupOptions,
    spec: Annotated[
        Path | None,
        typer.Argument(
            metavar="SPEC", help="The task group as JSON (- = stdin); options override it."
        ),
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of the task group.")] = None,
    tasks: Annotated[
        int, typer.Option(metavar="N", help="How many tasks are submitted at once.")
    ] = 1,
    task_duration: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="How long a task takes. [default: as measured with the same setup]"
        ),
    ] = None,
) -> None:
    """Show what each host would do for a task group, and when it would begin and end. Nothing is created.

    Times are at least, expected and at most, from measured durations of setups and tasks. What the clock does
    not know is not in them: other task groups may be created, and hosts be lost.
    """
    from mitosis.cli.validation import named, validated
    from mitosis.contracts.http import TaskGroupSpec
    from mitosis.contracts.plans import PlanTaskGroup

    typed = typed_fields(name, options)
    values: dict[str, Any] = {"name": UNNAMED}
    values = merged(merged(values, read_json_object(spec, "SPEC") if spec else {}), typed)
    names = option_names(options, typed, spec, "SPEC")
    checked = validated(TaskGroupSpec, values, names)
    asked = {"spec": checked, "tasks": tasks, "task_duration": task_duration}
    names = {f"spec.{field}": option for field, option in names.items()}
    names |= {"tasks": "--tasks", "task_duration": "--task-duration"}
    body = validated(PlanTaskGroup, asked, names)
    with named(names), cli.client() as client:
        found = client.plan_group(body.spec, tasks=body.tasks, task_duration=body.task_duration)
    cli.output.item(plan_item(found))


def plan_item(found: "PlanInfo") -> Item:
    """Return when it begins and ends, what it uses, and a line for each host."""
    used = found.resources
    workers = f"{used.workers} workers on {used.hosts} of {used.able_hosts} hosts"
    cores = "" if used.cores is None else f", {used.cores} cores of their own"
    more = "" if used.useful_hosts <= used.hosts else f"; it has work for {used.useful_hosts}"
    fields = [
        ("group", f"{found.group_name}/{found.name}"),
        ("begins", _moment_text(found.begins) or "unknown: no host comes to it by time alone"),
        ("ends", _moment_text(found.ends) or _no_end(found)),
        ("gets", f"{workers}{cores}{more}"),
        ("to get a host", found.smallest_change or ""),
        ("setup", _span_text(found.setup)),
        ("teardown", _span_text(found.teardown)),
        ("task", _span_text(found.task) if found.task else ""),
        ("host time", _span_text(used.host_time) if used.host_time else ""),
        ("measured", f"{found.measured_runs} setups and tasks" if found.measured_runs else ""),
        *[("host", f"{host.name}: {host.line}") for host in found.hosts],
    ]
    shown = [(label, text) for label, text in fields if text]
    return Item(found.model_dump(mode="json"), shown, found.name)


def _no_end(found: "PlanInfo") -> str:
    """Return why no end is known."""
    if found.begins is None:
        return "unknown, like its beginning"
    return "unknown: give --task-duration" if found.task is None else "unknown"


def _span_text(band: "SpanBand") -> str:
    """Return a band as in ``50s (25s to 1m40s)``."""
    least, most = _rounded(band.least), _rounded(band.most)
    expected = _rounded(band.expected)
    if expected == least == most:
        return expected
    return f"{expected or 'not measured'} ({least or '0s'} to {most or 'unknown'})"


def _rounded(span: timedelta | None) -> str:
    if span is None:
        return ""
    return span_text(span) or "0s"


def _moment_text(band: "TimeBand | None") -> str:
    """Return a band of moments; the expected one first."""
    if band is None:
        return ""
    between = f"{time_text(band.earliest)} to {time_text(band.latest) or 'unknown'}"
    expected = time_text(band.expected)
    return f"{expected} ({between})" if expected else between
