"""The assignment round: one transaction that matches idle managers to groups and writes offers."""

from collections.abc import AsyncIterator, Collection
from typing import Any

from psycopg.rows import DictRow

from mitosis.contracts.allocation import WorkerAllocationPlan
from mitosis.contracts.control import AssignAnswer
from mitosis.store.leases.matching import HungryGroup, IdleManager, Offer, match
from mitosis.store.pg.database import Connection
from mitosis.store.pg.statements import load
from mitosis.store.store import Store

SQL = load("leases/scheduler.sql")
GROUPS_PER_PAGE = 200
CHECK_OFFERS_SECONDS = 10.0
"""While an offer is open, its manager is poked again after this long."""
LOOK_SECONDS = (10.0, 60.0)
"""How often it is looked whether a busy host that somebody waits for has become idle: as often as the idle
threshold, but not more and not less often than this."""


class SchedulerStore:
    """Implements ``activities.managers.SchedulerPort``."""

    def __init__(self, store: Store) -> None:
        self._database = store.database
        self._idle_threshold = store.idle_threshold.total_seconds()

    async def assign_round(self) -> AssignAnswer:
        """Offer leases, end idle ones that others need, poke the hosts concerned, say when to look again."""
        async with self._database.transaction() as connection:
            await connection.execute(SQL["lock"])
            rows = await (await connection.execute(SQL["idle_managers"])).fetchall()
            idle = {row["id"]: _manager(row) for row in rows}
            offers = await _match_pages(connection, idle)
            offered = await _write(connection, offers)
            moved, next_idle = await self._move(connection, {offer.group for offer in offers})
            poked = (await connection.execute(SQL["poke_offered"])).rowcount
            if poked or moved:
                await connection.execute(SQL["tell_relay"])
            delayed = await (await connection.execute(SQL["next_delayed"])).fetchone()
        return AssignAnswer(
            offered=offered,
            resignalled=poked - offered,
            next_round_in_seconds=_next_round(delayed, poked, next_idle),
        )

    async def _move(self, connection: Connection, served: set[int]) -> tuple[int, float | None]:
        """End idle leases whose hosts other groups need: how many, and when the next one is idle enough.

        ``served`` groups have just been offered a host and wait for that one first. Nobody tells when a
        lease runs out of work whose group is not drained (other hosts have the rest, or a retry is not due):
        while a group waits for a host that is busy, another round looks.
        """
        threshold = {"idle_threshold": self._idle_threshold}
        cursor = await connection.execute(SQL["contestable_managers"], threshold)
        rows = {row["id"]: row for row in await cursor.fetchall()}
        idle = {number: _manager(row) for number, row in rows.items() if not row["busy"]}
        needed = await _match_pages(connection, idle, without_lease=True, served=served)
        left = [rows[offer.manager]["seconds_left"] for offer in needed]
        due = [rows[o.manager]["epoch"] for o in needed if rows[o.manager]["seconds_left"] <= 0]
        if due:
            await connection.execute(SQL["move_leases"], {"epochs": due})
        busy = {number: _manager(row) for number, row in rows.items() if row["busy"]}
        served = served | {offer.group for offer in needed}
        if await _match_pages(connection, busy, without_lease=True, served=served):
            left.append(min(max(self._idle_threshold, LOOK_SECONDS[0]), LOOK_SECONDS[1]))
        return len(due), min((seconds for seconds in left if seconds > 0), default=None)


async def _match_pages(
    connection: Connection,
    managers: dict[int, IdleManager],
    *,
    without_lease: bool = False,
    served: Collection[int] = (),
) -> list[Offer]:
    """Match page after page while there are managers; those used are taken out of ``managers``."""
    offers: list[Offer] = []
    if not managers:
        return offers
    async for page in _pages(connection, len(managers)):
        if without_lease:
            page = [g for g in page if g.live_leases == 0 and g.number not in served]
        offers += match(page, managers)
        if not managers:
            break
    return offers


async def _pages(connection: Connection, managers: int) -> AsyncIterator[list[HungryGroup]]:
    key: dict[str, Any] = {"after_priority": None, "after_id": None}
    while True:
        cursor = await connection.execute(
            SQL["hungry_groups"], {**key, "managers": managers, "limit": GROUPS_PER_PAGE}
        )
        rows = await cursor.fetchall()
        if rows:
            yield [_group(row) for row in rows]
        if len(rows) < GROUPS_PER_PAGE:
            return
        key = {"after_priority": rows[-1]["priority"], "after_id": rows[-1]["id"]}


async def _write(connection: Connection, offers: list[Offer]) -> int:
    """Write the offers of groups that are still open or closed; gives how many."""
    if not offers:
        return 0
    groups = sorted({offer.group for offer in offers})
    cursor = await connection.execute(SQL["hold_groups"], {"groups": groups})
    going_on = {row["group_id"] for row in await cursor.fetchall()}
    kept = [offer for offer in offers if offer.group in going_on]
    values = {
        "groups": [offer.group for offer in kept],
        "managers": [offer.manager for offer in kept],
    }
    return (await connection.execute(SQL["offer"], values)).rowcount


def _next_round(delayed: DictRow | None, open_offers: int, next_idle: float | None) -> float | None:
    candidates = [CHECK_OFFERS_SECONDS] if open_offers else []
    if next_idle is not None:
        candidates.append(max(next_idle, 0.1))
    if delayed is not None and delayed["seconds"] is not None:
        candidates.append(max(delayed["seconds"], 0.1))
    return min(candidates, default=None)


def _manager(row: DictRow) -> IdleManager:
    return IdleManager(
        number=row["id"],
        tags=frozenset(row["tags"]),
        cores=tuple(row["cores"]),
        serves=frozenset(row["serves"]),
        warm=frozenset(row["warm"]),
        failed=frozenset(row["failed"]),
    )


def _group(row: DictRow) -> HungryGroup:
    named = frozenset(row["named"]) if row["assignment_method"] == "user_specified" else None
    return HungryGroup(
        number=row["id"],
        user_group=row["user_group_id"],
        tags=frozenset(row["tags"]),
        tag_match=row["tag_match"],
        named=named,
        max_managers=row["max_managers"],
        plan=WorkerAllocationPlan.model_validate(row["plan"]),
        live_leases=row["live_leases"],
        ready=row["ready"],
    )
