"""Reads whether the failures of a task group come from one host, for `show`, `watch`, `run` and `explain`.

The results are read, which are kept after the end; ``host_failures`` is for decisions about hosts.
"""

import logging
from dataclasses import dataclass

from mitosis.contracts.failing_host import FailingHost
from mitosis.scheduling.host_failures import EndedThere, failing_host
from mitosis.store.pg.database import Connection
from mitosis.store.pg.rows import fetch_all, fetch_one
from mitosis.store.pg.statements import load
from mitosis.store.store import Store

SQL = load("leases/failing_host.sql")
NEWEST_RESULTS = 500
"""So many are read, and only of a group with as many failures as make a host suspected."""
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Counts:
    failed: int
    succeeded: int


@dataclass(frozen=True, slots=True)
class _Streak:
    manager_name: str
    failures: int


async def read_failing_host(
    connection: Connection, store: Store, group_number: int, *, failed: int, succeeded: int
) -> FailingHost | None:
    """Return the host that may be broken; ``failed`` and ``succeeded`` are the counts of the group."""
    if failed < store.quarantine_after or (succeeded and failed + succeeded > NEWEST_RESULTS):
        return None
    values = {"group_number": group_number, "most": NEWEST_RESULTS}
    ended = await fetch_all(connection, EndedThere, SQL["ended_there"], values)
    return failing_host(ended, store.quarantine_after, cut=failed > NEWEST_RESULTS)


async def explained_failing_host(
    connection: Connection, store: Store, group_number: int
) -> FailingHost | None:
    """Return the same for a caller that does not know the counts."""
    counts = await fetch_one(connection, _Counts, SQL["counts"], {"group_number": group_number})
    if counts is None:
        return None
    return await read_failing_host(
        connection, store, group_number, failed=counts.failed, succeeded=counts.succeeded
    )


async def log_lone_host(
    store: Store, group_number: int, manager_number: int, failed: int, known_failures: int
) -> None:
    """Log once that a host which no other one can judge has failed as many tasks as make a host suspected.

    ``known_failures``: before the report of the last ``failed`` ones.
    """
    if not known_failures < store.quarantine_after <= known_failures + failed:
        return
    values = {
        "group_number": group_number,
        "manager_number": manager_number,
        "quarantine_after": store.quarantine_after,
    }
    async with store.database.connection() as connection:
        streak = await fetch_one(connection, _Streak, SQL["streak"], values)
    if streak is None:  # it is suspected, which is logged there
        return
    facts = {
        "manager_name": streak.manager_name,
        "group_number": group_number,
        "phase": "watched",
        "reason": f"the last {streak.failures} tasks that ended there failed, and no other host can run them",
    }
    log.warning("host.judged", extra=facts)
