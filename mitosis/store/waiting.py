"""Why nothing happens, in one line for people: pure rules over facts, the first that holds.

Every rule is an answer to "what would I look at next?"; None means that work goes on.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from mitosis.contracts.allocation import WorkerAllocationPlan, worker_cpus
from mitosis.contracts.errors import InvalidRequest
from mitosis.contracts.http import WAITING_SETUP_FAILED
from mitosis.contracts.outcome import signal_name

Facts = Mapping[str, Any]
NAMES_SHOWN = 3


def waiting_for(group: Facts, facts: Facts) -> str | None:
    """``group`` is a row of ``show`` or ``observe``, ``facts`` one of ``waiting_facts``."""
    if group["settled"]:
        return None
    managers: Sequence[Facts] = facts["managers"]
    if group["state"] in ("complete", "cancelled") or group.get("discarding"):
        return _ending(group, managers)
    if _unfinished(group) == 0:
        return _drained(group)
    return _setup(managers) or _nobody(facts, managers)


def _unfinished(group: Facts) -> int:
    return int(group.get("unfinished", group.get("tasks_unfinished", 0)))


def _ending(group: Facts, managers: Sequence[Facts]) -> str | None:
    cleaning = [m["name"] for m in managers if m["environment"] in ("ready", "tearing_down")]
    if _unfinished(group) and any(m["lease"] for m in managers):
        return "running tasks are being ended"
    if _unfinished(group):
        return "tasks that nobody has claimed are being cancelled"
    if cleaning:
        return f"cleanup on {_names(cleaning)}"
    return "being settled"


def _drained(group: Facts) -> str:
    total = group.get("total", group.get("tasks_total", 0))
    if group["state"] == "closed":
        return "all tasks have ended; being completed"
    if total == 0:
        return "no task has been submitted yet"
    return "all tasks have ended; waiting for more tasks or for close"


def _setup(managers: Sequence[Facts]) -> str | None:
    """Somebody has a lease: nothing to explain once one is ready, else what the setup does."""
    holders = [m for m in managers if m["lease"] in ("offered", "active")]
    working = [m for m in holders if m["lease"] == "active" and m["environment"] == "ready"]
    if working:
        return None
    for manager in holders:
        setup = manager["setup"] or {}
        if setup.get("state") == "waiting":
            return f"{manager['name']} waits for infrastructure: {_message(setup)}"
    if holders:
        name = holders[0]["name"]
        offered = holders[0]["lease"] == "offered"
        return f"offered to {name}" if offered else f"setup on {name}"
    leaving = [m["name"] for m in managers if m["lease"]]
    return f"{_names(leaving)} finishes what it runs and leaves" if leaving else None


def _nobody(facts: Facts, managers: Sequence[Facts]) -> str | None:
    """Nobody has a lease: which condition leaves nobody over."""
    if any(m["lease"] for m in managers):
        return None
    if not facts["has_ready"] and facts["delayed_seconds"] is not None:
        return f"the next attempt is due in {max(facts['delayed_seconds'], 0):.0f} s"
    if not managers:
        return f"no manager may serve group {facts['group_name']}; register one there"
    named = [m for m in managers if m["named"]]
    if facts["assignment_method"] == "user_specified":
        managers = named
        if not managers:
            return "it runs only on managers that a user names, and none is named"
    fitting = [m for m in managers if m["tags_fit"]]
    if not fitting:
        return f"no manager has {facts['tag_match']} of the tags {', '.join(facts['tags'])}"
    return _why_not(fitting, WorkerAllocationPlan.model_validate(facts["plan"]))


def misfit(plan: WorkerAllocationPlan, host: str, cores: Sequence[int]) -> str | None:
    """Why the workers of ``plan`` cannot be bound on a host with these cores; None = they can."""
    try:
        worker_cpus(plan, cores)
    except InvalidRequest as error:
        return f"{host} cannot serve it: {error.message}"
    return None


def _why_not(fitting: Sequence[Facts], plan: WorkerAllocationPlan) -> str:
    """Managers with the right tags, none of which has a lease."""
    misfits = [m["cores"] and misfit(plan, m["name"], m["cores"]) for m in fitting]
    if (first := misfits[0]) and all(misfits):
        return str(first)
    fitting = [manager for manager, reason in zip(fitting, misfits, strict=True) if not reason]
    able = [m for m in fitting if not _failed(m)]
    if not able:
        return f"{WAITING_SETUP_FAILED}{fitting[0]['name']}: {_message(fitting[0]['setup'])}"
    online = [m for m in able if not m["silent"] and not m["draining"]]
    if not online:
        return f"no manager that may run it is in contact: {_names([m['name'] for m in able])}"
    free = [m for m in online if not m["busy"]]
    if not free:
        return f"busy with another group: {_names([m['name'] for m in online])}"
    clean = [m for m in free if not m["unclean"]]
    if not clean:
        return f"cleanup after another group on {_names([m['name'] for m in free])}"
    return "about to be offered to a manager"


def _failed(manager: Facts) -> bool:
    return (manager["setup"] or {}).get("state") == "failed"


def _message(setup: Facts) -> str:
    if setup.get("message"):
        return str(setup["message"])
    if setup.get("signal"):
        return f"killed by {signal_name(setup['signal'])}"
    return f"exit code {setup['exit_code']}" if setup.get("exit_code") is not None else "no message"


def _names(names: Sequence[str]) -> str:
    shown = ", ".join(names[:NAMES_SHOWN])
    more = len(names) - NAMES_SHOWN
    return f"{shown} and {more} more" if more > 0 else shown
