"""Facts for the pure rules of leases: a free host in contact, a group that wants it, what explains them."""

import uuid
from typing import Any

from mitosis.contracts.host_failures import HostFailureKind
from mitosis.contracts.lifecycle import EnvironmentState, HookState, LeaseState, TaskGroupState
from mitosis.scheduling.facts import Progress
from mitosis.scheduling.policy import Policy
from mitosis.store.leases.fleet import FailureRow, GroupRow, HostRow
from mitosis.store.leases.fleet_snapshot import build_fleet
from mitosis.store.leases.waiting import SetupRun, Waiting, WaitingGroup, WaitingHost

GROUP, OTHER_GROUP = 7, 8
USER_GROUP = 1
NOW = 1_000_000.0

NO_LEASE: dict[str, Any] = {
    **dict.fromkeys(
        (
            *("lease_number", "lease_group", "lease_state", "lease_draining", "progress"),
            *("taken_at", "affinity_until", "empty_since", "lease_for", "contested_at"),
            *("holder_name", "holder_user_group", "holder_priority"),
        )
    ),
    "renewed": False,
}
_HOST: dict[str, Any] = {
    "manager_id": uuid.UUID(int=1),
    "tags": frozenset({"gpu"}),
    "former_tags": (),
    "cores": (0, 1),
    "draining": False,
    "offline": False,
    "last_contact_at": NOW - 1.0,
    "serves": frozenset({USER_GROUP}),
    "warm": frozenset(),
    "unclean": frozenset(),
    "failures": (),
    "moved_at": (),
    "freed_for": (),
    **NO_LEASE,
}
_GROUP: dict[str, Any] = {
    "task_group_id": uuid.UUID(int=2),
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
    "workers": 1,
    "binding": None,
    "created_at": 0.0,
    "goes_on": True,
    "refuses_tasks": False,
    "unfinished": 1,
    "ready": 1,
    "ready_counted_to": 0,
    "delayed_until": None,
    "tasks_measured": 0,
    "task_seconds": 0.0,
    "setup_seconds": 0.0,
    "teardown_seconds": 0.0,
    "lease_duration": None,
    "longest_lease": None,
    "idle_threshold": None,
    "longest_idle": None,
    "preemption_grace": None,
}
_WAITING_HOST: dict[str, Any] = {
    "alive_in_seconds": None,
    "asked_back_in_seconds": None,
    "lost_after_seconds": 90.0,
    "environment": None,
    "setup": None,
}
_WAITING_GROUP: dict[str, Any] = {
    "kind": "managed",
    "now": NOW,
    "state": TaskGroupState.OPEN,
    "settled": False,
    "result": None,
    "reason": None,
    "total": 2,
    "discarding": False,
    "unsent_seconds": None,
    "delayed_seconds": None,
    "ends_if_setup_fails": False,
    "closes_in_seconds": None,
}


def host(number: int = 1, **facts: Any) -> HostRow:
    """A host that is free and in contact, with tag gpu and two cores."""
    return HostRow(**{**_HOST, "number": number, "name": f"host-{number}", **facts})


def group(number: int = GROUP, **facts: Any) -> GroupRow:
    """An open group with one ready task."""
    return GroupRow(**{**_GROUP, "number": number, **_matched(facts)})


def _matched(facts: dict[str, Any]) -> dict[str, Any]:
    """Unless the facts say otherwise, the tags of the group have not changed since its last refresh."""
    tags, tag_match = facts.get("tags", _GROUP["tags"]), facts.get("tag_match", _GROUP["tag_match"])
    return {"member_tags": tags, "member_tag_match": tag_match, **facts}


def lease(
    state: LeaseState | str = LeaseState.ACTIVE,
    group_number: int = GROUP,
    *,
    number: int = 1,
    name: str = "campaign",
    priority: int = 0,
    progress: Progress = Progress.FULL,
) -> dict[str, Any]:
    """The facts of a host about its lease."""
    return {
        "lease_number": number,
        "lease_state": LeaseState(state),
        "lease_group": group_number,
        "lease_draining": False,
        "progress": progress,
        "taken_at": NOW - 100.0,
        "holder_name": name,
        "holder_user_group": USER_GROUP,
        "holder_priority": priority,
    }


def failure(
    kind: HostFailureKind = HostFailureKind.SETUP_FAILED,
    group_number: int = GROUP,
    *,
    tried_in_seconds: float | None = None,
    **how: Any,
) -> FailureRow:
    next_at = None if tried_in_seconds is None else NOW + tried_in_seconds
    values = {"failures": 1, "reason": "exit code 3", "next_at": next_at, **how}
    return FailureRow(group=group_number, group_name="campaign", kind=kind, **values)


def setup_run(state: Any, message: str | None = None) -> SetupRun:
    return SetupRun(state=HookState(state), message=message, exit_code=None, signal=None)


def waiting_host(name: str = "a", **facts: Any) -> WaitingHost:
    number = ord(name[0]) - ord("a") + 1
    values = {**_HOST, "number": number, "name": name, **_WAITING_HOST, **facts}
    if isinstance(values["environment"], str):
        values["environment"] = EnvironmentState(values["environment"])
    return WaitingHost(**values)


def waiting_group(**facts: Any) -> WaitingGroup:
    values = {**_GROUP, "number": GROUP, **_WAITING_GROUP, **_matched(facts)}
    state = TaskGroupState(values["state"])
    goes_on = state in (TaskGroupState.OPEN, TaskGroupState.CLOSED) and not values["discarding"]
    return WaitingGroup(**{**values, "state": state, "goes_on": goes_on})


def waiting(*hosts: WaitingHost, **facts: Any) -> Waiting:
    of_group = waiting_group(**facts)
    return Waiting(of_group, hosts, build_fleet(Policy(), NOW, hosts, [of_group]))
