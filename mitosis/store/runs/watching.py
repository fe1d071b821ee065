"""A run as its workflow sees it."""

from dataclasses import dataclass
from uuid import UUID

from mitosis.contracts.run_control import RunSituation
from mitosis.store.pg.rows import fetch_one
from mitosis.store.pg.statements import load
from mitosis.store.runs.turns import advance_run
from mitosis.store.store import Store

SQL = load("runs/watching.sql")


@dataclass(frozen=True, slots=True)
class _Number:
    id: int


async def observe_run(store: Store, run_id: UUID) -> RunSituation:
    """Carry on a run as far as it comes now, and return it; ``exists=False`` when it was deleted."""
    given = {"run": run_id}
    async with store.database.connection() as connection:
        found = await fetch_one(connection, _Number, SQL["number"], given)
    if found is not None:
        await advance_run(store, found.id)
        async with store.database.connection() as connection:
            row = await (await connection.execute(SQL["situation"], given)).fetchone()
        if row is not None:
            return RunSituation.model_validate(
                {**row, "running_steps": tuple(row["running_steps"])}
            )
    return RunSituation(run_id=run_id, exists=False)
