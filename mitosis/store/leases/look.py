"""The backstop of every wakeup (protocol P7): whether PostgreSQL holds anything that a round would act on.

Reads only. One statement while no task is unfinished and no host leased; else also the rules of the round, in
Python. These also say what keeps hosts from each task group, so that its workflow can show it.
"""

from dataclasses import dataclass
from uuid import UUID

from mitosis.contracts.control import WaitingWork
from mitosis.store.leases.capacity import PROGRESS, STUCK, progress_parameters
from mitosis.store.leases.doubt import due_judgements
from mitosis.store.leases.failed_setups import groups_to_end
from mitosis.store.leases.scheduler import Seen, would_act
from mitosis.store.pg.rows import fetch_one
from mitosis.store.pg.statements import load
from mitosis.store.store import Store

SQL = load("leases/look.sql")
WAITING = SQL["waiting"].replace("$progress$", PROGRESS).replace("{stuck}", STUCK)


@dataclass(frozen=True, slots=True)
class _Offer:
    epoch: int
    manager_id: UUID


@dataclass(frozen=True, slots=True)
class _Waiting:
    work: bool
    in_use: bool
    """Some task group has unfinished tasks or a host."""
    stuck: list[int]
    last_epoch: int
    offered: list[_Offer]


async def look(store: Store) -> WaitingWork:
    """Return what waits for a round, hosts of offers not taken for a second, and groups that are to end."""
    parameters = {
        **progress_parameters(store),
        "idle_threshold": store.lease_terms.least_idle,
    }
    async with store.database.connection() as connection:
        found = await fetch_one(connection, _Waiting, WAITING, parameters)
        groups = await groups_to_end(connection)
        judgements = await due_judgements(connection, store.quarantine_after)
    if found is None:
        return WaitingWork()
    what = [f"lease {epoch} without progress" for epoch in found.stuck]
    what += judgements
    seen = Seen()
    if found.work or found.in_use:
        seen = await would_act(store)
        what += seen.actions if found.work else ()
    return WaitingWork(
        what=tuple(what),
        last_epoch=found.last_epoch,
        groups=tuple(groups),
        situations=seen.situations,
        idle_hosts=seen.idle_hosts,
        offered={offer.epoch: offer.manager_id for offer in found.offered},
    )
