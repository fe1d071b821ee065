"""Facts for the pure rules of leases: a free host in contact, a group that wants it, what explains them."""

import uuid
from typing import Any

from mitosis.contracts.allocation import WorkerAllocationPlan
from mitosis.contracts.host_failures import HostFailureKind
from mitosis.contracts.lifecycle import EnvironmentState, HookState, LeaseState, TaskGroupState
from mitosis.scheduling.host_failures import HostFailure
from mitosis.store.leases.eligibility import GroupFacts, HostFacts, HostLease
from mitosis.store.leases.reasons import SetupRun, Waiting, WaitingGroup, WaitingHost

GROUP, OTHER_GROUP = 7, 8
USER_GROUP = 1

_HOST: dict[str, Any] = {
    "manager_id": uuid.UUID(int=1),
    "tags": frozenset({"gpu"}),
    "former_tags": (),
    "cores": (0, 1),
    "draining": False,
    "offline": False,
    "silent_seconds": 1.0,
    "suspect_after_seconds": 10.0,
    "serves": frozenset({USER_GROUP}),
    "warm": frozenset(),
    "unclean": frozenset(),
    "failures": (),
    "lease": None,
}
_GROUP: dict[str, Any] = {
    "name": "campaign",
    "priority": 0,
    "user_group": USER_GROUP,
    "user_group_name": "team",
    "tags": frozenset(),
    "tag_match": "all",
    "member_version": 0,
    "assignment_method": "tag_matched",
    "added": frozenset(),
    "removed": frozenset(),
    "max_managers": None,
    "goes_on": True,
    "live_leases": 0,
    "capacity": 0,
    "ready": 1,
}
_WAITING_HOST: dict[str, Any] = {
    "alive_in_seconds": None,
    "lost_after_seconds": 90.0,
    "environment": None,
    "setup": None,
}
_WAITING_GROUP: dict[str, Any] = {
    "task_group_id": uuid.UUID(int=2),
    "state": TaskGroupState.OPEN,
    "settled": False,
    "result": None,
    "reason": None,
    "total": 2,
    "unfinished": 1,
    "discarding": False,
    "unsent_seconds": None,
    "delayed_seconds": None,
    "ends_if_setup_fails": False,
    "closes_in_seconds": None,
}


def host(number: int = 1, **facts: Any) -> HostFacts:
    """A host that is free and in contact, with tag gpu and two cores."""
    return HostFacts(**{**_HOST, "number": number, "name": f"host-{number}", **facts})


def group(number: int = GROUP, *, workers: int = 1, **facts: Any) -> GroupFacts:
    """An open group with one ready task."""
    plan = WorkerAllocationPlan(worker_count=workers)
    facts.setdefault("capacity", facts.get("live_leases", 0))
    return GroupFacts(**{**_GROUP, "number": number, "plan": plan, **_matched(facts)})


def _matched(facts: dict[str, Any]) -> dict[str, Any]:
    """Unless the facts say otherwise, the tags of the group have not changed since its last refresh."""
    tags, tag_match = facts.get("tags", _GROUP["tags"]), facts.get("tag_match", _GROUP["tag_match"])
    return {"member_tags": tags, "member_tag_match": tag_match, **facts}


def lease(
    state: LeaseState | str = LeaseState.ACTIVE,
    group_number: int = GROUP,
    *,
    name: str = "campaign",
    priority: int = 0,
    has_work: bool = True,
    idle_seconds: float | None = 0.0,
) -> HostLease:
    return HostLease(
        epoch=1,
        state=LeaseState(state),
        group=group_number,
        group_name=name,
        priority=priority,
        has_work=has_work,
        idle_seconds=idle_seconds,
    )


def failure(
    kind: HostFailureKind = HostFailureKind.SETUP_FAILED, group_number: int = GROUP, **how: Any
) -> HostFailure:
    values = {"failures": 1, "reason": "exit code 3", "tried_in_seconds": None, **how}
    return HostFailure(group=group_number, group_name="campaign", kind=kind, **values)


def setup_run(state: Any, message: str | None = None) -> SetupRun:
    return SetupRun(state=HookState(state), message=message, exit_code=None, signal=None)


def waiting_host(name: str = "a", **facts: Any) -> WaitingHost:
    values = {**_HOST, "number": 1, "name": name, **_WAITING_HOST, **facts}
    if isinstance(values["environment"], str):
        values["environment"] = EnvironmentState(values["environment"])
    return WaitingHost(**values)


def waiting_group(**facts: Any) -> WaitingGroup:
    plan = WorkerAllocationPlan(worker_count=1)
    values = {**_GROUP, "number": GROUP, "plan": plan, **_WAITING_GROUP, **_matched(facts)}
    return WaitingGroup(**{**values, "state": TaskGroupState(values["state"])})


def waiting(*hosts: WaitingHost, **facts: Any) -> Waiting:
    return Waiting(group=waiting_group(**facts), hosts=hosts)
