"""Changes the tags of a host, without effect on the task groups that were matched before (C-32)."""

from collections.abc import Collection

from mitosis.store.leases.membership import hold_tags
from mitosis.store.pg.database import Connection
from mitosis.store.pg.statements import load

SQL = load("managers/tags.sql")


async def set_tags(connection: Connection, manager_number: int, tags: Collection[str]) -> None:
    """Replace the tags of a manager, in the caller's transaction.

    Task groups that exist keep or lose the host as a member only when they are refreshed. New ones are
    matched by the new tags. Before the first hello of its agent the change counts for all.
    """
    values = {"manager_number": manager_number, "tags": sorted(set(tags))}
    await hold_tags(connection)
    await connection.execute(SQL["keep_former_tags"], values)
    await connection.execute(SQL["forget_former_tags"], values)
    await connection.execute(SQL["set_tags"], values)
