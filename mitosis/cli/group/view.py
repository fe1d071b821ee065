"""Tables and details of task groups. Pure functions of the API's answers."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mitosis.cli.rendering import Item, Table, elapsed_text, span_text, time_text
from mitosis.cli.shell_hints import hook_hint
from mitosis.cli.switching import switching_text

if TYPE_CHECKING:
    from mitosis.contracts.http import HookRunInfo, TaskGroupInfo


def group_item(group: "TaskGroupInfo") -> Item:
    """Return the fields of a task group that have a value, the most important ones first."""
    fields = [
        ("group", f"{group.group_name}/{group.name}"),
        ("id", str(group.task_group_id)),
        ("state", state_text(group)),
        ("tasks", counts_text(group)),
        ("cancelled", _cancelled_text(group)),
        ("waits for", group.waiting_for or ""),
        ("reason", group.reason or ""),
        ("failures", failing_host_text(group)),
        ("rate", f"{group.tasks_per_second:.3g} tasks/s" if group.tasks_per_second else ""),
        ("expected end", time_text(group.estimated_completion_at)),
        ("tags", ", ".join(group.tags)),
        ("labels", ", ".join(group.labels)),
        ("priority", str(group.priority)),
        ("workers", _workers_text(group)),
        ("leases", _lease_text(group)),
        ("switching", switching_text(group.switching)),
        ("auto-close", span_text(group.auto_close_timeout)),
        ("deadline", time_text(group.close_deadline)),
        ("created", time_text(group.created_at)),
        ("last submission", time_text(group.last_task_submitted_at)),
        ("closed", time_text(group.closed_at)),
        ("completed", time_text(group.completed_at)),
        ("settled", time_text(group.settled_at)),
        *[("host", f"{lease.manager_name}: lease {lease.state}") for lease in group.leases],
        *_hook_fields(group),
        ("workflow", group.workflow_id),
    ]
    shown = [(label, text) for label, text in fields if text]
    return Item(group.model_dump(mode="json"), shown, str(group.task_group_id))


def state_text(group: "TaskGroupInfo") -> str:
    """Return a state as in ``closed``, ``complete, cleaning up`` or ``complete, settled: success``."""
    if group.settled:
        return f"{group.state}, settled: {group.result}"
    if group.state in ("complete", "cancelled"):
        return f"{group.state}, {'counting tasks' if group.counting else 'cleaning up'}"
    return str(group.state)


def counts_text(group: "TaskGroupInfo") -> str:
    """Return counts as in ``5 of 8 completed (4 succeeded, 1 failed), 2 running``."""
    parts = [
        f"{count} {word}"
        for word, count in (
            ("succeeded", group.tasks_succeeded),
            ("failed", group.tasks_failed),
            ("cancelled", group.tasks_cancelled),
        )
        if count
    ]
    text = f"{group.tasks_completed} of {group.tasks_total} completed"
    text += f" ({', '.join(parts)})" if parts else ""
    return text + (f", {group.tasks_running} running" if group.tasks_running else "")


def failing_host_text(group: "TaskGroupInfo") -> str:
    """Return the host that its failures come from, and what may be wrong; or nothing."""
    host = group.failing_host
    return "" if host is None else f"{host.manager_name} {host.line}"


def _cancelled_text(group: "TaskGroupInfo") -> str:
    """Return what a cancel did, as in ``5 waiting, 2 running``."""
    stats = group.cancel_stats
    if stats is None:
        return ""
    text = f"{stats.ready_cancelled} waiting, {stats.running_cancelled} running"
    left = stats.running_not_cancellable
    return text + (f"; {left} unreachable" if left else "")


def _lease_text(group: "TaskGroupInfo") -> str:
    """Return the terms of its leases, as in ``1h to 4h; 3m to 10m without work; 5m of grace``."""
    terms = group.lease_terms
    if terms is None:
        return ""
    held = f"{span_text(terms.lease_duration)} to {span_text(terms.longest_lease)}"
    idle = f"{span_text(terms.idle_threshold)} to {span_text(terms.longest_idle)} without work"
    return f"{held}; {idle}; {span_text(terms.preemption_grace)} of grace"


def groups_table(groups: "Sequence[TaskGroupInfo]") -> Table:
    rows = [
        (
            f"{group.group_name}/{group.name}",
            state_text(group),
            f"{group.tasks_completed}/{group.tasks_total}",
            str(group.tasks_failed),
            time_text(group.created_at),
            str(group.task_group_id),
        )
        for group in groups
    ]
    return Table(
        data=[group.model_dump(mode="json") for group in groups],
        columns=("group", "state", "completed", "failed", "created", "id"),
        rows=rows,
        ids=[str(group.task_group_id) for group in groups],
        empty="no task groups (create one with: mitosis group create NAME)",
    )


def _workers_text(group: "TaskGroupInfo") -> str:
    plan = group.worker_allocation_plan
    text = f"{plan.worker_count} per host"
    if plan.cpu_binding is None:
        return text
    cores = plan.cpu_binding.cores
    where = "all cores" if cores is None else "cores " + ",".join(map(str, cores))
    return f"{text}, {plan.cpu_binding.strategy} on {where}"


def _hook_fields(group: "TaskGroupInfo") -> list[tuple[str, str]]:
    fields: list[tuple[str, str]] = []
    for run in group.hook_runs:
        text = f"{run.state} on {run.manager_name}"
        took = elapsed_text(run.started_at, run.finished_at)
        text += f" in {took}" if took else ""
        text += f": {run.message}" if run.message else ""
        if run.state == "failed" and run.stderr_tail:
            text += f"\n{run.stderr_tail}"
        if hint := hint_of_hook(group, run):
            text += f"\n{hint}"
        fields.append((run.kind, text))
    return fields


def hint_of_hook(group: "TaskGroupInfo", run: "HookRunInfo") -> str | None:
    """Return a hint if this hook failed to start because it is a shell line."""
    setup = run.kind == "setup"
    hook = group.environment_setup_hook if setup else group.environment_teardown_hook
    if hook is None or run.state != "failed":
        return None
    return hook_hint(run.kind, hook.command, run.message)
