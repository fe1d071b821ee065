"""Which fields a task group of each kind has: one without effect is refused."""

from mitosis.contracts.errors import InvalidRequest
from mitosis.contracts.http import TaskGroupKind, TaskGroupSpec, TaskGroupUpdate

OF_HOSTS = frozenset(
    {
        *(
            "worker_allocation_plan",
            "max_managers",
            "assignment_method",
            "manager_ids",
            "require_host",
        ),
        *("environment_setup_hook", "environment_teardown_hook", "environment_probe"),
        *("on_setup_failure", "host_lost_after", "fence", "lease_settings", "tag_match"),
    }
)
OF_SERVICES = frozenset({"preference_seconds"})


def check_fields_of_kind(kind: TaskGroupKind, body: TaskGroupSpec | TaskGroupUpdate) -> None:
    """Check that the fields that are not left at their defaults have an effect on this kind of task group.

    Raises:
        InvalidRequest: names the first that has none.
    """
    without_effect = OF_SERVICES if kind == "managed" else OF_HOSTS
    given = {
        name
        for name, field in type(body).model_fields.items()
        if getattr(body, name) != field.default
    }
    for field in sorted(without_effect & given):
        other = "service" if kind == "managed" else "managed"
        raise InvalidRequest(
            f"has an effect only on task groups of the kind {other}, and this is of the kind {kind}",
            field=field,
        )
