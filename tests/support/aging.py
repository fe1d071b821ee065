"""Time that passes in a database, and the deletion of what is kept no longer."""

from psycopg.sql import SQL, Identifier

from mitosis.store.retention.deletion import add_kinds, delete_expired_chunk
from tests.support.campaigns import CALLS, World

AGED = {
    "leases": ("state = 'ended'", "offered_at", "taken_at", "ended_at"),
    "environments": ("state = 'gone'", "created_at", "changed_at"),
    "hook_runs": ("true", "started_at", "finished_at"),
    "worker_registrations": (
        "unregistered_at IS NOT NULL",
        "registered_at",
        "last_heartbeat_at",
        "alive_until",
        "unregistered_at",
    ),
    "worker_named_tasks": ("withdrawn_at IS NOT NULL", "created_at", "withdrawn_at"),
    "group_live": (
        "settled_at IS NOT NULL",
        "opened_at",
        "closed_at",
        "terminal_at",
        "settled_at",
    ),
    "managers": ("deleted_at IS NOT NULL", "created_at", "deleted_at"),
    "runs": ("ended_at IS NOT NULL", "created_at", "started_at", "ended_at"),
    "deleted_groups": ("finished_at IS NOT NULL", "deleted_at", "finished_at"),
}
"""What has ended: the condition, and the columns with its times."""
SILENT = "last_contact_at < now() - interval '30 seconds'"


async def time_passes(w: World, days: float) -> None:
    """Make what has ended so much older. Hosts that are in contact were so all the time; silences go on."""
    passed = SQL("make_interval(secs => {})").format(days * 86_400)
    for table, (condition, *columns) in AGED.items():
        changes = SQL(", ").join(
            SQL("{0} = {0} - {1}").format(Identifier(column), passed) for column in columns
        )
        await w.rows(
            SQL("UPDATE {} SET {} WHERE ").format(Identifier(table), changes) + SQL(condition)
        )
    for condition, column in (("true", "contact_since"), (SILENT, "last_contact_at")):
        await w.rows(
            SQL("UPDATE manager_live SET {0} = {0} - {1} WHERE ").format(Identifier(column), passed)
            + SQL(condition)
        )


async def delete_expired(w: World, limit: int = 100) -> int:
    """Delete all that is kept no longer; return in how many chunks."""
    await add_kinds(w.store)
    await w.rows("UPDATE retention SET next_at = now() - interval '1 second'")
    for chunks in range(CALLS):
        if not await delete_expired_chunk(w.store, limit):
            return chunks
    raise AssertionError(f"a pass has no end after {CALLS} chunks")
