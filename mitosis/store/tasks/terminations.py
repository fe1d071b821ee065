"""How many deaths by SIGTERM or SIGINT in a row end a task (C-29).

Read only for a batch of reports that has such a death, so that all others cost nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from mitosis.store.pg.arrays import number_array
from mitosis.store.pg.rows import fetch_all
from mitosis.store.pg.statements import load
from mitosis.store.store import Store

SQL = load("tasks/terminations.sql")


@dataclass(frozen=True, slots=True)
class _Limit:
    id: int
    most: int | None


async def termination_limits(store: Store, task_ids: Sequence[int]) -> dict[int, int]:
    """Return for each task its own limit, or that of the deployment."""
    if not task_ids:
        return {}
    async with store.database.connection() as connection:
        values = {"ids": number_array(task_ids)}
        rows = await fetch_all(connection, _Limit, SQL["termination_limits"], values)
    own = {row.id: row.most for row in rows if row.most is not None}
    return {task_id: own.get(task_id, store.max_terminations) for task_id in task_ids}
