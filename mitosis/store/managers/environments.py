"""Environments: what a group's setup left on a host (protocol P9). Every change is a compare-and-set.

``lifecycle.ENVIRONMENT`` is the table; beyond it: setup belongs to the ACTIVE lease that it names,
and a teardown begins only when the group is terminal or the manager has no OFFERED or ACTIVE lease
for it.
"""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from psycopg.rows import DictRow

from mitosis.contracts.errors import InvalidRequest, InvalidTransition, LeaseLost, NotFound
from mitosis.contracts.http import EnvironmentChange, EnvironmentGrant, HookReport
from mitosis.contracts.lifecycle import ENVIRONMENT, EnvironmentEvent, EnvironmentState
from mitosis.store.pg.database import Connection
from mitosis.store.pg.outbox import poke
from mitosis.store.pg.statements import load
from mitosis.store.pg.wake import tell_watchers

SQL = load("managers/managers.sql")

_SETUP = ("preparing", "prepared", "setup_failed")
_GOAL: Mapping[str, EnvironmentState] = {
    "preparing": EnvironmentState.PREPARING,
    "prepared": EnvironmentState.READY,
    "setup_failed": EnvironmentState.GONE,
    "tear_down": EnvironmentState.TEARING_DOWN,
    "cleaned": EnvironmentState.GONE,
}
"""Event of the agent → the state it leads to; being there already is success."""


async def change(
    connection: Connection, manager_id: UUID, task_group_id: UUID, asked: EnvironmentChange
) -> EnvironmentState:
    """Change an environment in the caller's transaction; as ``ManagerStore.change_environment``."""
    ids = {"manager": manager_id, "group": task_group_id}
    facts = await (await connection.execute(SQL["environment_facts"], ids)).fetchone()
    if facts is None:
        raise NotFound("no such task group", task_group_id=str(task_group_id))
    cursor = await connection.execute(SQL["lock_leases_for_environment"], facts)
    leases = {row["epoch"]: row["state"] for row in await cursor.fetchall()}
    if asked.event in _SETUP:
        _check_lease(leases, asked)
    elif asked.event == "tear_down":
        _check_teardown(leases, facts)
    now = await (await connection.execute(SQL["lock_environment"], facts)).fetchone()
    state = _after(None if now is None else EnvironmentState(now["state"]), asked)
    if now is None or state != now["state"] or asked.event == "preparing":
        await connection.execute(SQL["save_environment"], _row(facts, asked, state))
    if asked.hook is not None:
        await _save_hook_run(connection, facts, asked, asked.hook)
    await tell_watchers(connection, facts["group_number"])
    gone = state is EnvironmentState.GONE
    # The group may have ended since its state was read, and wait for this environment to go.
    groups = [task_group_id] if facts["terminal"] or gone else []
    await poke(connection, managers=[manager_id], groups=groups, scheduler=gone)
    return state


async def grant(connection: Connection, manager_id: UUID, task_group_id: UUID) -> EnvironmentGrant:
    """See :meth:`mitosis.store.managers.contact.ManagerStore.environment`."""
    ids = {"manager": manager_id, "group": task_group_id}
    row = await (await connection.execute(SQL["environment"], ids)).fetchone()
    if row is None:
        raise NotFound("there is no such environment", task_group_id=str(task_group_id))
    return EnvironmentGrant.model_validate(row)


def _check_lease(leases: Mapping[int, str], asked: EnvironmentChange) -> None:
    """Setup starts under an ACTIVE lease; its end may also be told while the lease is ending."""
    if asked.epoch is None:
        raise InvalidRequest("is needed for setup", field="epoch")
    allowed = ("active",) if asked.event == "preparing" else ("active", "ending")
    if leases.get(asked.epoch) not in allowed:
        raise LeaseLost(epoch=asked.epoch)


def _check_teardown(leases: Mapping[int, str], facts: DictRow) -> None:
    if not facts["terminal"] and {"offered", "active"} & set(leases.values()):
        raise InvalidTransition(
            subject="environment",
            state="in use",
            event="tear_down",
            allowed=(),
            message="the manager has a live lease for this group, and the group goes on",
        )


def _after(state: EnvironmentState | None, asked: EnvironmentChange) -> EnvironmentState:
    """The state after the event; a repeated event is success.

    Raises:
        NotFound: the first event must be ``preparing``.
        InvalidTransition: by the table.
    """
    goal = _GOAL[asked.event]
    if state is None and asked.event != "preparing":
        raise NotFound("there is no such environment")
    if state is None or state is goal:
        return goal
    event = "prepare_again" if asked.event == "preparing" else asked.event
    return ENVIRONMENT.after(state, EnvironmentEvent(event))


def _row(facts: DictRow, asked: EnvironmentChange, state: EnvironmentState) -> dict[str, Any]:
    return {
        **facts,
        "state": state.value,
        "fingerprint": asked.fingerprint,
        "epoch": asked.epoch,
        "degraded": asked.degraded,
    }


async def _save_hook_run(
    connection: Connection, facts: DictRow, asked: EnvironmentChange, hook: HookReport
) -> None:
    """One row per run, recognised by its start; the environment's row lock orders the writers."""
    values = {
        **facts,
        **hook.model_dump(exclude={"state"}),
        "hook_state": hook.state,
        "kind": "setup" if asked.event in _SETUP else "teardown",
        "epoch": asked.epoch,
    }
    for name in ("message", "stdout_tail", "stderr_tail"):
        if values[name] is not None:  # output of a program: text may not hold a NUL
            values[name] = values[name].replace("\0", "\N{SYMBOL FOR NULL}")
    updated = await connection.execute(SQL["update_hook_run"], values)
    if updated.rowcount == 0:
        await connection.execute(SQL["insert_hook_run"], values)
