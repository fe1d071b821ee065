"""Refuses a task group that no registered host may run, where its creator asks for that (S000-160)."""

from dataclasses import dataclass

from mitosis.contracts.errors import InvalidRequest
from mitosis.contracts.http import TaskGroupSpec
from mitosis.scheduling.binding import binding_mismatch
from mitosis.store.leases.membership import tags_fit
from mitosis.store.pg.database import Connection
from mitosis.store.pg.rows import fetch_all
from mitosis.store.pg.statements import load

SQL = load("groups/definition.sql")


@dataclass(frozen=True, slots=True)
class _Host:
    name: str
    tags: frozenset[str]
    cores: list[int]


async def require_host(connection: Connection, group_number: int, spec: TaskGroupSpec) -> None:
    """Check that some host may run the group that this transaction creates.

    Raises:
        InvalidRequest: none may; the first condition that leaves no host over, and the field to change.
    """
    if spec.assignment_method == "user_specified":
        if not spec.manager_ids:
            raise InvalidRequest(
                "it runs only on hosts that are named for it, and none is named",
                field="manager_ids",
            )
        return  # each of them has the role, and the plan was compared with all of them
    hosts = await fetch_all(
        connection, _Host, SQL["hosts_with_tags"], {"group_number": group_number}
    )
    if not hosts:
        raise InvalidRequest(
            "no host may work for the user group; register one there: mitosis manager register",
            field="group_name",
        )
    matched = [host for host in hosts if tags_fit(host.tags, spec.tags, spec.tag_match)]
    if not matched:
        raise InvalidRequest(_no_tags(hosts, spec), field="tags", hosts=len(hosts))
    plan = spec.worker_allocation_plan
    reasons = [
        binding_mismatch(plan.worker_count, plan.cpu_binding, tuple(host.cores))
        for host in matched
        if host.cores  # else its agent has never started
    ]
    if reasons and len(reasons) == len(matched) and all(reasons):
        raise InvalidRequest(
            f"{matched[0].name} cannot serve it: {reasons[0]}",
            field="worker_allocation_plan",
            hosts=len(matched),
        )


def _no_tags(hosts: list[_Host], spec: TaskGroupSpec) -> str:
    """Name the tags, what the closest host lacks, and the tags that there are."""
    closest = min(hosts, key=lambda host: len(spec.tags - host.tags))
    known = sorted({tag for host in hosts for tag in host.tags})
    lacks = ", ".join(sorted(spec.tags - closest.tags))
    return (
        f"no host has {spec.tag_match} of the tags {', '.join(sorted(spec.tags))}: {closest.name} lacks"
        f" {lacks}; hosts have {', '.join(known[:20]) or 'no tags'}"
    )
