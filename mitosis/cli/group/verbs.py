"""Commands on an existing task group: change, close, reopen, cancel, complete, delete."""

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mitosis.cli.arguments import GroupArgument
from mitosis.cli.context import Cli
from mitosis.cli.group.create import OPTION_OF_FIELD, cpu_binding, merged, present, underscored
from mitosis.cli.group.options import (
    CancelGraceOption,
    CoresOption,
    CoresPerWorkerOption,
    IdleOption,
    LabelOption,
    LeaseOption,
    LongestIdleOption,
    LongestLeaseOption,
    MaxProcessesOption,
    MaxTasksOption,
    OnSetupFailureOption,
    PinOption,
    PreemptionGraceOption,
    PriorityOption,
    ReopenOption,
    TagMatchOption,
    TagOption,
    WorkersOption,
)
from mitosis.cli.group.view import group_item
from mitosis.cli.registration import FormerNames
from mitosis.cli.rendering import Item
from mitosis.contracts.errors import InvalidRequest, NotFound

if TYPE_CHECKING:
    from mitosis.contracts.http import TaskGroupInfo

ReasonOption = Annotated[
    str | None, typer.Option(metavar="TEXT", help="Reason, stored with the task group.")
]
GraceOption = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="Time from SIGTERM to SIGKILL. [default: the task group's]"),
]
ChangedAutoCloseOption = Annotated[
    str | None,
    typer.Option(
        metavar="TIME|never",
        help="Close after this long without a submission, as in 30m, or never.",
    ),
]
ChangedMaxHostsOption = Annotated[
    str | None,
    typer.Option(metavar="N|unlimited", help="Most hosts at the same time, or unlimited."),
    FormerNames(("--max-managers",)),
]
NO_LIMIT = {"auto_close_timeout": "never", "max_managers": "unlimited"}
"""The word that removes a limit, by its field."""


def change(
    cli: Cli,
    group: GroupArgument,
    tag: TagOption = None,
    label: LabelOption = None,
    tag_match: TagMatchOption = None,
    priority: PriorityOption = None,
    workers: WorkersOption = None,
    pin: PinOption = None,
    cores: CoresOption = None,
    cores_per_worker: CoresPerWorkerOption = None,
    max_tasks_per_worker: MaxTasksOption = None,
    max_processes_per_worker: MaxProcessesOption = None,
    auto_close: ChangedAutoCloseOption = None,
    max_hosts: ChangedMaxHostsOption = None,
    cancel_grace: CancelGraceOption = None,
    reopen_on_submit: ReopenOption = None,
    on_setup_failure: OnSetupFailureOption = None,
    lease: LeaseOption = None,
    longest_lease: LongestLeaseOption = None,
    idle: IdleOption = None,
    longest_idle: LongestIdleOption = None,
    preemption_grace: PreemptionGraceOption = None,
) -> None:
    """Change a task group that has not ended; options that are left out change nothing.

    New tags and labels replace the present ones; tags change the list of hosts at the next
    `mitosis group managers --refresh`. Fewer hosts end the last leases after the tasks that run there.
    Hosts that work for the task group take over a new plan of workers with their next lease.
    Lease times, idle times and grace take `default` for the value of the deployment.
    """
    from mitosis.cli.validation import named, seconds, validated
    from mitosis.contracts.http import TaskGroupUpdate

    binding = cpu_binding(pin, cores, cores_per_worker)
    plan = _changes_of_plan(workers, binding, max_tasks_per_worker, max_processes_per_worker)
    given: dict[str, Any] = {
        "tags": tag,
        "labels": label,
        "tag_match": tag_match,
        "priority": priority,
        "worker_allocation_plan": plan,
        "auto_close_timeout": auto_close,
        "max_managers": _number(max_hosts),
        "cancel_grace_seconds": seconds(cancel_grace, "--cancel-grace"),
        "reopen_on_submit": reopen_on_submit,
        "on_setup_failure": underscored(on_setup_failure),
        "lease_settings.lease_duration": lease,
        "lease_settings.longest_lease": longest_lease,
        "lease_settings.idle_threshold": idle,
        "lease_settings.longest_idle": longest_idle,
        "lease_settings.preemption_grace": preemption_grace,
    }
    values = _changes(given)
    validated(TaskGroupUpdate, nested(values), OPTION_OF_FIELD)
    with named(OPTION_OF_FIELD), cli.client() as client:
        if plan is not None:
            values |= _plan_of(client.group(group), plan)
        update = validated(TaskGroupUpdate, nested(values), OPTION_OF_FIELD)
        cli.output.item(group_item(client.update_group(group, update)))


def _changes(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that options change; None removes a limit, or a setting of the task group's own.

    Raises:
        InvalidRequest: there is none.
    """
    values = {
        key: None if value == NO_LIMIT.get(key, "default") else value
        for key, value in given.items()
        if value is not None and value != []
    }
    if not values:
        raise InvalidRequest(
            "give at least one change: "
            + ", ".join(OPTION_OF_FIELD.get(key, "--workers") for key in given)
        )
    return values


def _changes_of_plan(
    workers: int | None, binding: dict[str, Any] | None, tasks: int | None, processes: int | None
) -> dict[str, Any] | None:
    """Return the fields of the plan that options change; None without any."""
    limits = {"max_tasks_per_worker": tasks, "max_processes_per_worker": processes}
    return present({"worker_count": workers, "cpu_binding": binding, **limits})


def _plan_of(group: "TaskGroupInfo", changes: dict[str, Any]) -> dict[str, Any]:
    """Return the whole plan with these changes, refused if it has been changed by then."""
    plan = group.worker_allocation_plan.model_dump(mode="json", exclude_none=True)
    return {
        "worker_allocation_plan": merged(plan, changes),
        "expected_updated_at": group.updated_at,
    }


def nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``{"a.b": 1}`` as ``{"a": {"b": 1}}``."""
    result: dict[str, Any] = {}
    for path, value in values.items():
        *above, name = path.split(".")
        place = result
        for step in above:
            place = place.setdefault(step, {})
        place[name] = value
    return result


def _number(text: str | None) -> int | str | None:
    """Convert to a number where possible; validation reports other words."""
    try:
        return None if text is None else int(text)
    except ValueError:
        return text


def close(cli: Cli, group: GroupArgument, reason: ReasonOption = None) -> None:
    """Accept no more tasks; the task group completes when its last task ends."""
    with cli.client() as client:
        cli.output.item(group_item(client.close_group(group, reason=reason)))


def reopen(cli: Cli, group: GroupArgument, reason: ReasonOption = None) -> None:
    """Open a closed task group, so that it accepts tasks again."""
    with cli.client() as client:
        cli.output.item(group_item(client.reopen(group, reason=reason)))


def cancel(
    cli: Cli,
    group: GroupArgument,
    reason: ReasonOption = None,
    let_running_finish: Annotated[
        bool, typer.Option("--let-running-finish", help="Let tasks that run now finish.")
    ] = False,
    grace: GraceOption = None,
) -> None:
    """Cancel a task group: no more tasks start, and running tasks are ended with grace."""
    grace_period = _grace(grace)
    with cli.client() as client:
        cancelled = client.cancel(
            group,
            reason=reason,
            cancel_running_tasks=not let_running_finish,
            grace=grace_period,
        )
    cli.output.item(group_item(cancelled))


def complete(
    cli: Cli,
    group: GroupArgument,
    reason: ReasonOption = None,
    force: Annotated[
        bool, typer.Option("--force", help="Cancel unfinished tasks instead of waiting.")
    ] = False,
    grace: GraceOption = None,
) -> None:
    """Close a task group so that it completes; with --force it completes at once."""
    grace_period = _grace(grace)
    with cli.client() as client:
        completed = client.complete(group, reason=reason, force=force, grace=grace_period)
    cli.output.item(group_item(completed))


def _grace(text: str | None) -> timedelta | None:
    """Parse the time from SIGTERM to SIGKILL.

    Raises:
        InvalidRequest: it is not a duration, or too long.
    """
    from mitosis.cli.validation import duration, validated
    from mitosis.contracts.http import CancelBody

    span = duration(text, "--grace")
    if span is not None:
        values = {"grace_seconds": span.total_seconds()}
        validated(CancelBody, values, {"grace_seconds": "--grace"})
    return span


def delete(
    cli: Cli,
    group: GroupArgument,
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Cancel it first if it has not ended, and delete it after that."
        ),
    ] = False,
    grace: GraceOption = None,
    reason: ReasonOption = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="With --force: wait until it is deleted.")
    ] = False,
) -> None:
    """Delete a settled task group with its tasks and results.

    With --force a running one is cancelled with grace and its hosts clean up; then it is deleted, also if
    nothing waits for it.
    """
    grace_period = _grace(grace)
    for option, given in (("--grace", grace), ("--reason", reason), ("--wait", wait)):
        if given and not force:
            raise InvalidRequest("is only for --force", option=option)
    with cli.client() as client:
        left = client.delete_group(group, force=force, grace=grace_period, reason=reason)
        if wait and left is not None:
            try:
                client.wait(left.task_group_id)
            except NotFound:
                left = None
    if left is None:
        cli.output.item(Item(data={"deleted": group}, fields=[("deleted", group)], id=group))
        return
    fields = [("is deleted when its hosts are clean", group)]
    cli.output.item(Item(data={"deleting": group}, fields=fields, id=group))


COMMANDS: dict[str, Callable[..., Any]] = {
    "change": change,
    "close": close,
    "reopen": reopen,
    "cancel": cancel,
    "complete": complete,
    "delete": delete,
}
