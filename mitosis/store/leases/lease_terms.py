"""The terms of leases: what users set for task groups, and what follows for one lease (C-31, C-35)."""

from collections.abc import Sequence
from dataclasses import dataclass

from mitosis.contracts.lease_settings import LeaseSettings, check_settings, terms_of
from mitosis.scheduling import costs
from mitosis.scheduling.facts import Group, Work
from mitosis.scheduling.policy import Policy
from mitosis.store.leases.durations import group_durations, pair_durations
from mitosis.store.pg.database import Connection
from mitosis.store.pg.rows import fetch_all
from mitosis.store.pg.statements import load
from mitosis.store.store import Store, StoreOptions

SQL = load("leases/lease_terms.sql")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Saved:
    """The settings of a task group; None is the value of the deployment."""

    number: int
    workers: int
    lease_duration: float | None
    longest_lease: float | None
    idle_threshold: float | None
    longest_idle: float | None
    preemption_grace: float | None

    def values(self) -> dict[str, float | None]:
        """Return the settings by field."""
        return {name: getattr(self, name) for name in LeaseSettings.model_fields}


def policy_of(store: Store | StoreOptions) -> Policy:
    """Return the rules of the deployment, as decisions use them."""
    starve_after = store.starve_after.total_seconds()
    return Policy(
        leases=store.lease_terms,
        suspect_after_seconds=store.suspect_after.total_seconds(),
        moves_per_hour=store.moves_per_hour,
        starve_after_seconds=starve_after or None,
    )


async def save_settings(
    connection: Connection, store: Store, group_number: int, changes: LeaseSettings
) -> None:
    """Change the settings that are given, in the caller's transaction; None removes one.

    Raises:
        InvalidRequest: together with the others they make no sense; names the field.
    """
    (saved,) = await _saved(connection, [group_number])
    given = changes.values()
    values = {**saved.values(), **{name: given[name] for name in changes.model_fields_set}}
    check_settings(values, store.lease_terms, changes.model_fields_set)
    await connection.execute(SQL["save_lease_settings"], {**values, "group_number": group_number})


async def affinity_seconds(
    connection: Connection, store: Store, group_number: int, manager_number: int
) -> float:
    """Return how long the host stays with the group: 20 times what it costs to move it, within the bounds.

    The cost is its setup and teardown there, and the time until the longest running task ends.
    """
    (saved,) = await _saved(connection, [group_number])
    pair = (await pair_durations(connection, [(group_number, manager_number)]))[
        group_number, manager_number
    ]
    measured = (await group_durations(connection, [group_number]))[group_number]
    work = Work(
        setup_seconds=pair.setup_seconds,
        teardown_seconds=pair.teardown_seconds,
        task_seconds=measured.task_seconds,
    )
    terms = terms_of(saved.values(), store.lease_terms)
    group = Group(number=group_number, name="", user_group=0, workers=saved.workers, leases=terms)
    return costs.affinity_seconds(group, work, policy_of(store))


async def _saved(connection: Connection, groups: Sequence[int]) -> Sequence[_Saved]:
    values = {"groups": list(groups)}
    return await fetch_all(connection, _Saved, SQL["read_lease_settings"], values)
