"""Environments: the result of a group's setup on a host (protocol P9). Every change is a compare-and-set.

``lifecycle.ENVIRONMENT`` is the table. Beyond it, setup belongs to the ACTIVE lease that it names and
waits for every teardown that the host owes. A teardown begins only when it is owed, when the group is
terminal, or when the manager has no OFFERED or ACTIVE lease for it. An environment is a row of its host:
it has all that its teardown needs, and outlives the group (P8).
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from uuid import UUID

from mitosis.contracts.agent_http import (
    EnvironmentAnswer,
    EnvironmentChange,
    EnvironmentGrant,
    HookReport,
)
from mitosis.contracts.errors import InvalidRequest, InvalidTransition, LeaseLost, NotFound
from mitosis.contracts.host_failures import HostFailureKind
from mitosis.contracts.lifecycle import (
    ENVIRONMENT,
    EnvironmentEvent,
    EnvironmentState,
    LeaseState,
)
from mitosis.scheduling.wording import hook_end
from mitosis.store.leases.durations import DurationKind, record_duration
from mitosis.store.leases.failures import forget_failures, record_failure
from mitosis.store.missing import require_task_group
from mitosis.store.pg.database import Connection
from mitosis.store.pg.outbox import poke
from mitosis.store.pg.rows import fetch_all, fetch_one
from mitosis.store.pg.statements import load
from mitosis.store.pg.wake import notify_watchers
from mitosis.store.store import Store

SQL = load("managers/environments.sql")

_SETUP = ("preparing", "prepared", "setup_failed")
_SETUP_SUCCEEDS = ("preparing", "prepared")
"""The activity that prepares ends with these: its workflow needs no poke."""
_SETUP_ENDS = ("prepared", "setup_failed")
_GOAL: Mapping[str, EnvironmentState] = {
    "preparing": EnvironmentState.PREPARING,
    "prepared": EnvironmentState.READY,
    "setup_failed": EnvironmentState.TEARING_DOWN,
    "tear_down": EnvironmentState.TEARING_DOWN,
    "postpone": EnvironmentState.OWED,
    "cleaned": EnvironmentState.GONE,
}
"""The state after each event of the agent; if the environment is in it already, the call succeeds."""
_MEASURED: Mapping[str, DurationKind] = {"prepared": "setup", "cleaned": "teardown"}
"""The events that end a step whose duration counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Facts:
    group_number: int
    manager_number: int
    machine_id: str | None
    boot_id: str | None
    exists: bool
    """The group has not been deleted."""
    terminal: bool
    """The group is COMPLETE or CANCELLED, or has been deleted."""


@dataclass(frozen=True, slots=True)
class _Lease:
    epoch: int
    state: LeaseState


@dataclass(frozen=True, slots=True)
class _Environment:
    state: EnvironmentState
    seconds: float
    """Since its last change."""


@dataclass(frozen=True, slots=True)
class _Debt:
    group_id: int


async def change_environment(
    store: Store, manager_id: UUID, task_group_id: UUID, asked: EnvironmentChange
) -> EnvironmentAnswer:
    """Change an environment and record the hook's report. Repeating a report succeeds.

    The end of a setup hook is also recorded when the change comes too late, after the loss of its lease.

    Raises:
        NotFound: there is no such group or environment.
        LeaseLost: preparing, prepared or setup_failed without the ACTIVE lease it names.
        InvalidTransition: the state, or a live lease, does not allow it.
    """
    try:
        async with store.database.transaction() as connection:
            state = await _change(connection, manager_id, task_group_id, asked)
    except (LeaseLost, InvalidTransition):
        if asked.event in _SETUP_ENDS and asked.hook is not None:
            await _record_late_end(store, manager_id, task_group_id, asked.hook)
        raise
    return EnvironmentAnswer(state=state)


async def get_environment(store: Store, manager_id: UUID, task_group_id: UUID) -> EnvironmentGrant:
    """Return what the agent needs to clean up.

    Raises:
        NotFound: there is no such environment, or it is GONE.
    """
    ids = {"manager": manager_id, "group": task_group_id}
    async with store.database.connection() as connection:
        grant = await fetch_one(connection, EnvironmentGrant, SQL["environment"], ids)
    if grant is None:
        raise NotFound("there is no such environment", task_group_id=str(task_group_id))
    return grant


async def _change(
    connection: Connection, manager_id: UUID, task_group_id: UUID, asked: EnvironmentChange
) -> EnvironmentState:
    ids = {"manager": manager_id, "group": task_group_id}
    facts = require_task_group(
        await fetch_one(connection, _Facts, SQL["environment_facts"], ids), task_group_id
    )
    numbers = {"manager_number": facts.manager_number, "group_number": facts.group_number}
    held = await fetch_all(connection, _Lease, SQL["lock_leases_for_environment"], numbers)
    leases = {lease.epoch: lease.state for lease in held}
    if asked.event in _SETUP:
        _check_lease(leases, asked)
    now = await fetch_one(connection, _Environment, SQL["lock_environment"], numbers)
    before = None if now is None else now.state
    if asked.event == "tear_down" and not (before and before.is_debt):
        _check_teardown(leases, facts)
    state = _after(before, asked)
    if asked.event == "preparing":
        await _check_clean(connection, numbers)
    if before is None:
        await connection.execute(SQL["create_environment"], _row(facts, asked, state))
    elif state is not before or asked.event == "preparing":
        await connection.execute(SQL["change_environment"], _row(facts, asked, state))
    started_at = None if asked.hook is None else asked.hook.started_at
    await connection.execute(SQL["end_interrupted_hooks"], {**numbers, "started_at": started_at})
    if asked.hook is not None:
        await _save_hook_run(connection, facts, asked, asked.hook)
    if now is None or state is not now.state:
        await _remember_setup(connection, facts, asked)
        await _measure(connection, facts, asked, now)
    await notify_watchers(connection, facts.group_number)
    gone = state is EnvironmentState.GONE
    # The group may have ended since its state was read; it then waits for this environment's end.
    waits = facts.exists and (
        gone or (facts.terminal and state is not EnvironmentState.TEARING_DOWN)
    )
    await poke(
        connection,
        managers=[] if asked.event in _SETUP_SUCCEEDS else [manager_id],
        groups=[task_group_id] if waits else [],
        scheduler=gone,
    )
    return state


def _check_lease(leases: Mapping[int, LeaseState], asked: EnvironmentChange) -> None:
    """Check that setup starts under an ACTIVE lease; its end may also come while the lease is ENDING."""
    if asked.epoch is None:
        raise InvalidRequest("is required for setup events", field="epoch")
    allowed = [LeaseState.ACTIVE]
    if asked.event != "preparing":
        allowed.append(LeaseState.ENDING)
    if leases.get(asked.epoch) not in allowed:
        raise LeaseLost(epoch=asked.epoch)


async def _check_clean(connection: Connection, numbers: Mapping[str, int]) -> None:
    """Check that the host owes no teardown, of this group or another one: it comes before any setup.

    The host itself begins no other teardown while it prepares, so that nothing changes after this.
    """
    if await fetch_one(connection, _Debt, SQL["debt"], numbers) is not None:
        raise InvalidTransition(
            subject="environment",
            state=EnvironmentState.OWED,
            event="preparing",
            allowed=(),
            message="the host has to clean up after a task group first",
        )


def _check_teardown(leases: Mapping[int, LeaseState], facts: _Facts) -> None:
    in_use = {LeaseState.OFFERED, LeaseState.ACTIVE} & set(leases.values())
    if not facts.terminal and in_use:
        raise InvalidTransition(
            subject="environment",
            state="in use",
            event="tear_down",
            allowed=(),
            message="the manager has a live lease for this group, and the group goes on",
        )


def _after(state: EnvironmentState | None, asked: EnvironmentChange) -> EnvironmentState:
    """Return the state after the event; a repeated event is success.

    Raises:
        NotFound: the first event must be ``preparing``.
        InvalidTransition: the table does not allow it.
    """
    goal = _GOAL[asked.event]
    if state is None and asked.event != "preparing":
        raise NotFound("there is no such environment")
    if state is None or state is goal:
        return goal
    event = "prepare_again" if asked.event == "preparing" else asked.event
    return ENVIRONMENT.after(state, EnvironmentEvent(event))


def _row(facts: _Facts, asked: EnvironmentChange, state: EnvironmentState) -> Mapping[str, object]:
    return {
        **asdict(facts),
        "state": state.value,
        "fingerprint": asked.fingerprint,
        "epoch": asked.epoch,
        "degraded": asked.degraded,
    }


async def _remember_setup(connection: Connection, facts: _Facts, asked: EnvironmentChange) -> None:
    """Remember a failed setup, which is not repeated on this host by itself (C-30).

    A setup for which no process could be made has not run: it is charged to the host and repeated.
    """
    kind, hook = HostFailureKind.SETUP_FAILED, asked.hook
    if hook is not None and hook.state == "waiting":
        kind = HostFailureKind.WORKERS_NOT_STARTED
    manager, group = facts.manager_number, facts.group_number
    if asked.event == "setup_failed":
        end = hook_end(hook.message, hook.exit_code, hook.signal) if hook else "no message"
        await record_failure(connection, manager, group, kind, end)
    elif asked.event == "prepared":
        await forget_failures(connection, manager, group, (kind,))


async def _measure(
    connection: Connection, facts: _Facts, asked: EnvironmentChange, before: _Environment | None
) -> None:
    """Record how long a setup or teardown took that is over: its hook; without one, the whole step."""
    kind, hook = _MEASURED.get(asked.event), asked.hook
    if kind is None or before is None:
        return
    seconds = before.seconds
    if hook is not None and hook.finished_at is not None:
        seconds = max(0.0, (hook.finished_at - hook.started_at).total_seconds())
    await record_duration(connection, facts.group_number, facts.manager_number, kind, seconds)


async def _record_late_end(
    store: Store, manager_id: UUID, task_group_id: UUID, hook: HookReport
) -> None:
    """Record how a listed run of a setup hook ended; the environment stays as it is."""
    ids = {"manager": manager_id, "group": task_group_id}
    async with store.database.transaction() as connection:
        facts = await fetch_one(connection, _Facts, SQL["environment_facts"], ids)
        if facts is not None:
            values = {**asdict(facts), **_of_hook(hook), "kind": "setup"}
            await connection.execute(SQL["update_hook_run"], values)
            await notify_watchers(connection, facts.group_number)


async def _save_hook_run(
    connection: Connection, facts: _Facts, asked: EnvironmentChange, hook: HookReport
) -> None:
    """Save one row per run, identified by its start; the environment's row lock orders the writers."""
    kind = "setup" if asked.event in _SETUP else "teardown"
    values = {**asdict(facts), **_of_hook(hook), "kind": kind, "epoch": asked.epoch}
    await connection.execute(SQL["forget_waiting_hook"], values)
    updated = await connection.execute(SQL["update_hook_run"], values)
    if updated.rowcount == 0:
        await connection.execute(SQL["insert_hook_run"], values)


def _of_hook(hook: HookReport) -> dict[str, object]:
    values = hook.model_dump(exclude={"state"})
    for name in ("message", "stdout_tail", "stderr_tail"):
        if values[name] is not None:
            # The output of a program may contain NUL, which PostgreSQL cannot store.
            values[name] = values[name].replace("\0", "\N{SYMBOL FOR NULL}")
    return {**values, "hook_state": hook.state}
