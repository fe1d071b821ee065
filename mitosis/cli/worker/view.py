"""Tables and details of worker services. Pure functions of the API's answers."""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mitosis.cli.rendering import Item, Table, time_text

if TYPE_CHECKING:
    from mitosis.contracts.worker_services import (
        NamedTaskInfo,
        RegistrationInfo,
        WorkerInfo,
        WorkerTaskInfo,
    )


def workers_table(workers: "Sequence[WorkerInfo]") -> Table:
    return Table(
        data=[one.model_dump(mode="json") for one in workers],
        columns=("worker", "health", "drained", "tasks", "slots", "user groups", "last heartbeat"),
        rows=[
            (
                one.worker_id,
                str(one.health),
                "yes" if one.draining_since else "",
                str(one.task_count),
                str(one.slots),
                ", ".join(one.groups),
                time_text(one.last_heartbeat_at),
            )
            for one in workers
        ],
        ids=[one.worker_id for one in workers],
        empty="no worker services",
    )


def worker_item(one: "WorkerInfo") -> Item:
    fields = [
        ("worker", one.worker_id),
        ("health", str(one.health)),
        ("drained since", time_text(one.draining_since)),
        ("drained because", one.drain_reason or ""),
        ("user groups", ", ".join(one.groups)),
        ("tags", ", ".join(one.tags)),
        ("labels", ", ".join(one.labels)),
        ("slots", str(one.slots)),
        ("connection", one.connection_type),
        ("metadata", json.dumps(one.metadata) if one.metadata else ""),
        ("registered", time_text(one.registered_at)),
        ("last heartbeat", time_text(one.last_heartbeat_at)),
        *[("supports", _task_text(task)) for task in one.supported_tasks or ()],
    ]
    shown = [(label, text) for label, text in fields if text]
    return Item(one.model_dump(mode="json"), shown, one.worker_id)


def history_table(registrations: "Sequence[RegistrationInfo]") -> Table:
    return Table(
        data=[one.model_dump(mode="json") for one in registrations],
        columns=("registration", "registered", "seconds", "health", "ended", "reason"),
        rows=[
            (
                str(one.registration_id),
                time_text(one.registered_at),
                f"{one.duration_seconds:.0f}",
                str(one.health),
                time_text(one.unregistered_at),
                one.failure_reason or "",
            )
            for one in registrations
        ],
        ids=[str(one.registration_id) for one in registrations],
        empty="no registrations",
    )


def named_tasks_table(
    tasks: "Sequence[NamedTaskInfo]", empty: str = "no named tasks with worker services"
) -> Table:
    names = [f"{one.namespace}/{one.name}@{one.version}" for one in tasks]
    return Table(
        data=[one.model_dump(mode="json") for one in tasks],
        columns=("named task", "user group", "available", "supporting", "workers"),
        rows=[
            (name, one.group_name, str(one.available), str(one.supporting), _ids(one.worker_ids))
            for name, one in zip(names, tasks, strict=True)
        ],
        ids=names,
        empty=empty,
    )


def _ids(worker_ids: Sequence[str], most: int = 5) -> str:
    more = len(worker_ids) - most
    return ", ".join(worker_ids[:most]) + (f" and {more} more" if more > 0 else "")


def _task_text(one: "WorkerTaskInfo") -> str:
    return (
        f"{one.namespace}/{one.name}@{one.version} for {one.group_name}, priority {one.priority},"
        f" configuration {one.configuration_version}: {json.dumps(one.configuration)}"
    )
