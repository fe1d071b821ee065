"""Why nothing happens, in one line for people: pure rules over facts, the first that holds.

Every rule is an answer to "what would I look at next?". One code path: the line that `show`, `watch`,
`run` and Temporal's details show is the one that `explain` gives, which adds each host's own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mitosis.contracts.allocation import WorkerAllocationPlan, worker_cpus
from mitosis.contracts.errors import InvalidRequest
from mitosis.contracts.http import WAITING_SETUP_FAILED
from mitosis.contracts.outcome import signal_name

Facts = Mapping[str, Any]
NAMES_SHOWN = 3
UNSENT_SECONDS = 3.0
"""A message to Temporal that is older has met an obstacle: it is sent within milliseconds."""

_STANDING = ("preparing", "ready", "tearing_down")
"""Environments that a teardown has yet to end."""


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a group or a task stands where it stands."""

    code: str
    """Stable, for programs."""
    line: str
    waits: bool = True
    """False: nothing is in the way; it runs, or it is over."""


WORKING = "working"


def waiting_for(group: Facts, facts: Facts) -> str | None:
    """The line of :func:`why`; None when nothing is in the way."""
    reason = why(group, facts)
    return reason.line if reason.waits else None


def why(group: Facts, facts: Facts) -> Reason:
    """``group`` is a row of ``show`` or ``observe``, ``facts`` one of ``waiting_facts``."""
    if group["settled"]:
        why_so = f" ({reason})" if (reason := group.get("reason")) else ""
        line = f"it has ended: {group.get('result') or group['state']}{why_so}"
        return Reason("finished", line, False)
    managers: Sequence[Facts] = facts["managers"]
    if group["state"] in ("complete", "cancelled") or group.get("discarding"):
        return _ending(group, facts, managers) or Reason("settling", "being settled")
    if _unfinished(group) == 0:
        return _drained(group, facts)
    return _held(managers) or _nobody(facts, managers)


def _unfinished(group: Facts) -> int:
    return int(group.get("unfinished", group.get("tasks_unfinished", 0)))


def _ending(group: Facts, facts: Facts, managers: Sequence[Facts]) -> Reason | None:
    cleaning = [m["name"] for m in managers if m["environment"] in _STANDING]
    if _unfinished(group) and any(m["lease"] for m in managers):
        return Reason("ending_tasks", "running tasks are being ended")
    if "tearing_down" not in [m["environment"] for m in managers] and (unsent := _unsent(facts)):
        return unsent
    if _unfinished(group):
        return Reason("discarding", "tasks that nobody has claimed are being cancelled")
    if not cleaning:
        return None
    gone = [_last_seen(m) for m in managers if m["name"] in cleaning and m["silent"]]
    away = f", silent: {_names(gone)}; their teardown is owed 90 s after that" if gone else ""
    return Reason("cleanup", f"cleanup on {_names(cleaning)}{away}")


def _unsent(facts: Facts) -> Reason | None:
    """Temporal has not heard what PostgreSQL has to say."""
    age = facts.get("unsent_seconds") or 0.0
    if age < UNSENT_SECONDS:
        return None
    line = f"waiting for infrastructure: Temporal has not been reached for {_span(age)}"
    return Reason("infrastructure", line)


def _drained(group: Facts, facts: Facts) -> Reason:
    total = group.get("total", group.get("tasks_total", 0))
    if group["state"] == "closed":
        line = "all tasks have ended; being completed"
        return _unsent(facts) or Reason("completing", line)
    if total == 0:
        return Reason("empty", "no task has been submitted yet")
    return Reason("open", "all tasks have ended; waiting for more tasks or for close")


def _held(managers: Sequence[Facts]) -> Reason | None:
    """Somebody has a lease: nothing to explain once one is ready, else what the setup does."""
    holders = [m for m in managers if m["lease"] in ("offered", "active")]
    working = [m for m in holders if m["lease"] == "active" and m["environment"] == "ready"]
    if any(not m["silent"] for m in working):
        names = [m["name"] for m in working if not m["silent"]]
        return Reason(WORKING, f"tasks run on {_names(names)}", False)
    if working:
        return Reason("suspect", _silent_line(working[0]))
    for manager in holders:
        setup = manager["setup"] or {}
        if setup.get("state") == "waiting":
            line = f"{manager['name']} waits for infrastructure: {_message(setup)}"
            return Reason("infrastructure", line)
    if holders:
        name, offered = holders[0]["name"], holders[0]["lease"] == "offered"
        return Reason("offered", f"offered to {name}") if offered else _in_setup(holders[0])
    leaving = [m["name"] for m in managers if m["lease"]]
    if not leaving:
        return None
    return Reason("leaving", f"{_names(leaving)} finishes what it runs and leaves")


def _in_setup(manager: Facts) -> Reason:
    if manager["silent"]:
        return Reason("suspect", _silent_line(manager))
    return Reason("setup", f"setup on {manager['name']}")


def _silent_line(manager: Facts) -> str:
    """``host-1 has not been in contact for 42 s; its tasks go to others in 48 s``"""
    line = f"{manager['name']} has not been in contact for {_span(manager.get('silent_seconds'))}"
    left = manager.get("alive_in_seconds")
    if left is None:
        return line
    return f"{line}; what it has is given to others in {_span(max(0.0, left))}, unless it is back"


def _nobody(facts: Facts, managers: Sequence[Facts]) -> Reason:
    """Nobody has a lease: which condition leaves nobody over."""
    if not facts["has_ready"] and facts["delayed_seconds"] is not None:
        line = f"the next attempt is due in {max(facts['delayed_seconds'], 0):.0f} s"
        return Reason("delayed", line)
    if not managers:
        line = f"no manager may serve group {facts['group_name']}; register one there"
        return Reason("no_manager", line)
    named = [m for m in managers if m["named"]]
    if facts["assignment_method"] == "user_specified":
        managers = named
        if not managers:
            line = "it runs only on managers that a user names, and none is named"
            return Reason("none_named", line)
    fitting = [m for m in managers if m["tags_fit"]]
    if not fitting:
        return Reason("tags", _tags_line(facts, managers))
    return _why_not(fitting, facts)


def _tags_line(facts: Facts, managers: Sequence[Facts]) -> str:
    """Names the tags, and what the manager that comes closest lacks."""
    line = f"no manager has {facts['tag_match']} of the tags {', '.join(facts['tags'])}"
    lacking = [(missing_tags(facts, m), m["name"]) for m in managers if m.get("tags") is not None]
    if facts["tag_match"] != "all" or not lacking:
        return line
    missing, name = min(lacking, key=lambda entry: len(entry[0]))
    return f"{line}: {name} lacks {', '.join(missing)}"


def missing_tags(facts: Facts, manager: Facts) -> list[str]:
    """The tags of the group that a manager does not have."""
    return sorted(set(facts["tags"]) - set(manager.get("tags") or ()))


def misfit(plan: WorkerAllocationPlan, host: str, cores: Sequence[int]) -> str | None:
    """Why the workers of ``plan`` cannot be bound on a host with these cores; None = they can."""
    try:
        worker_cpus(plan, cores)
    except InvalidRequest as error:
        return f"{host} cannot serve it: {error.message}"
    return None


def _why_not(fitting: Sequence[Facts], facts: Facts) -> Reason:
    """Managers with the right tags, none of which has a lease."""
    plan = WorkerAllocationPlan.model_validate(facts["plan"])
    misfits = [m["cores"] and misfit(plan, m["name"], m["cores"]) for m in fitting]
    if (first := misfits[0]) and all(misfits):
        return Reason("misfit", str(first))
    fitting = [manager for manager, reason in zip(fitting, misfits, strict=True) if not reason]
    able = [m for m in fitting if not _failed(m)]
    if not able:
        line = f"{WAITING_SETUP_FAILED}{fitting[0]['name']}: {_message(fitting[0]['setup'])}"
        return Reason("setup_failed", line)
    online = [m for m in able if not m["silent"] and not m["draining"]]
    if not online:
        return _out_of_contact(able)
    free = [m for m in online if not m["busy"]]
    if not free:
        return Reason("busy", _busy_line(online, facts))
    clean = [m for m in free if not m["unclean"]]
    if not clean:
        line = f"cleanup after another group on {_names([m['name'] for m in free])}"
        return Reason("unclean", line)
    return _unsent(facts) or Reason("assigning", "about to be offered to a manager")


def _out_of_contact(able: Sequence[Facts]) -> Reason:
    if all(m["draining"] and not m["silent"] for m in able):
        names = _names([m["name"] for m in able])
        return Reason("draining", f"every manager that may run it takes nothing new: {names}")
    seen = [_last_seen(m) for m in able]
    return Reason("no_contact", f"no manager that may run it is in contact: {_names(seen)}")


def _last_seen(manager: Facts) -> str:
    seconds = manager.get("silent_seconds")
    return (
        manager["name"]
        if seconds is None
        else f"{manager['name']} (last seen {_span(seconds)} ago)"
    )


def _busy_line(online: Sequence[Facts], facts: Facts) -> str:
    groups = [m["busy_with"] for m in online if m.get("busy_with")]
    names = _names([m["name"] for m in online])
    if not groups:
        return f"busy with another group: {names}"
    whom = _names(sorted({group["name"] for group in groups}))
    higher = all(group["priority"] > facts["priority"] for group in groups)
    return f"{names} busy with {'groups of higher priority' if higher else 'other groups'}: {whom}"


def host_reason(manager: Facts, facts: Facts) -> Reason:  # noqa: C901, PLR0911 - one line per rule
    """Where one host stands towards the group."""
    plan = WorkerAllocationPlan.model_validate(facts["plan"])
    if manager["lease"]:
        alone = _held([manager])
        return alone or Reason("leaving", "finishes what it runs and leaves")
    if facts["assignment_method"] == "user_specified" and not manager["named"]:
        return Reason("not_named", "is not named for the group")
    if not manager["tags_fit"]:
        return Reason("tags", f"lacks {', '.join(missing_tags(facts, manager))}")
    if _failed(manager):
        return Reason("setup_failed", f"setup failed: {_message(manager['setup'])}")
    if manager["silent"]:
        return Reason("no_contact", f"last seen {_span(manager.get('silent_seconds'))} ago")
    if manager["cores"] and (problem := misfit(plan, "it", manager["cores"])):
        return Reason("misfit", problem)
    if manager["draining"]:
        return Reason("draining", "takes nothing new")
    if manager["busy"]:
        return Reason("busy", _busy_line([{**manager, "name": "it is"}], facts))
    if manager["environment"] == "tearing_down":
        return Reason("cleanup", "cleans up")
    if manager["unclean"]:
        return Reason("unclean", "cleans up after another group")
    return Reason("free", "is free", False)


def task_reason(task: Facts, group: Reason) -> Reason:  # noqa: PLR0911 - one line per rule
    """Where one task stands; ``task`` is a row of ``task_facts``, ``group`` the reason of its group."""
    attempt = f"attempt {task['attempt']}"
    host = task["manager_name"]
    if task["result"] is not None:
        ended = {
            "succeeded": "it has succeeded",
            "failed": "it has failed",
            "cancelled": "it was cancelled",
        }
        how = f", {task['kind'].replace('_', ' ')}" if task["kind"] else ""
        where = f" on {host}" if host else ""
        return Reason("finished", f"{ended[task['result']]}{where}, {attempt}{how}", False)
    if task["claimed"]:
        if task["silent"]:
            return Reason("suspect", _silent_line({**task, "name": host}))
        if task["running_seconds"] is not None:
            line = f"it has been running on {host} for {_span(task['running_seconds'])}, {attempt}"
            return Reason(WORKING, line, False)
        return Reason("claimed", f"{host} has it and starts it as soon as a worker is free", False)
    if (task["delayed_seconds"] or 0.0) > 0:
        line = f"attempt {task['attempt'] + 1} is due in {_span(task['delayed_seconds'])}"
        return Reason("delayed", line)
    if group.waits:
        return group
    if task["lost_count"] > 1:
        line = "it was on hosts that were lost, and waits until it can run alone on one"
        return Reason("alone", line)
    before = task["before"]
    others = "1 other task is" if before == 1 else f"{before} other tasks are"
    return Reason(
        "queued", f"{others} before it; {group.line}" if before else f"it is next; {group.line}"
    )


def _failed(manager: Facts) -> bool:
    return (manager["setup"] or {}).get("state") == "failed"


def _message(setup: Facts) -> str:
    if setup.get("message"):
        return str(setup["message"])
    if setup.get("signal"):
        return f"killed by {signal_name(setup['signal'])}"
    return f"exit code {setup['exit_code']}" if setup.get("exit_code") is not None else "no message"


def _span(seconds: float | None) -> str:
    """``7 s``, ``3 min``, ``2 h``"""
    if seconds is None:
        return "a while"
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"


def _names(names: Sequence[str]) -> str:
    shown = ", ".join(names[:NAMES_SHOWN])
    more = len(names) - NAMES_SHOWN
    return f"{shown} and {more} more" if more > 0 else shown
