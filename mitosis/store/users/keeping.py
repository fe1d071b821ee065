"""How long the settled task groups of a user group are kept (C-34)."""

import math
from dataclasses import dataclass
from datetime import timedelta

from mitosis.contracts.errors import NotFound
from mitosis.contracts.retention import KeepTaskGroups, UserGroupRetention
from mitosis.store.pg.rows import fetch_one
from mitosis.store.pg.statements import load
from mitosis.store.store import Store

SQL = load("users/keeping.sql")


@dataclass(frozen=True, slots=True)
class _Kept:
    keep_seconds: float | None


async def show_kept(store: Store, group_name: str) -> UserGroupRetention:
    """Return the time of a user group, and that of the deployment.

    Raises:
        NotFound: there is no such user group.
    """
    return await _execute(store, "show", {"name": group_name})


async def keep_task_groups(
    store: Store, group_name: str, terms: KeepTaskGroups
) -> UserGroupRetention:
    """Set the time of a user group; the next pass of the retention follows it.

    Raises:
        NotFound: there is no such user group.
    """
    kept = math.inf if terms.for_ever else _seconds(terms.keep)
    return await _execute(store, "keep", {"name": group_name, "keep_seconds": kept})


async def _execute(store: Store, statement: str, values: dict[str, object]) -> UserGroupRetention:
    async with store.database.connection() as connection:
        found = await fetch_one(connection, _Kept, SQL[statement], values)
    if found is None:
        raise NotFound("there is no such user group", group_name=str(values["name"]))
    kept = found.keep_seconds
    return UserGroupRetention(
        group_name=str(values["name"]),
        keep_seconds=kept if kept is not None and math.isfinite(kept) else None,
        for_ever=kept == math.inf,
        deployment_keep_seconds=_seconds(store.retention.task_groups),
    )


def _seconds(span: timedelta | None) -> float | None:
    return None if span is None else span.total_seconds()
