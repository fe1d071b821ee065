"""Figures about schedules, for metrics."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from mitosis.store.pg.rows import fetch_all
from mitosis.store.pg.statements import load
from mitosis.store.store import Store

SQL = load("schedules/figures.sql")
MOST_COUNTED = 1000
"""Of the starts of one schedule, for each look at the metrics."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleFigures:
    """The schedules of a user group."""

    group_name: str
    active: int
    paused: int
    refused: int
    """Their last start was refused."""
    problems: int
    """Temporal does not accept them."""
    waiting: int
    """Starts that have no run yet, of each schedule at most :data:`MOST_COUNTED`."""
    late_seconds: float
    """How long after it the last time of a schedule was noticed, at most."""
    overdue_seconds: float
    """For how long the first time that is due has not been looked at."""


async def schedule_figures(store: Store, viewer_id: UUID) -> Sequence[ScheduleFigures]:
    """Return the figures of the user groups of the viewer that have schedules; an admin sees all."""
    given = {"viewer": viewer_id, "most": MOST_COUNTED}
    async with store.database.connection() as connection:
        return await fetch_all(connection, ScheduleFigures, SQL["figures"], given)
