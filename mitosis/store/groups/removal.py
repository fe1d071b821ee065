"""Removes a settled task group for every reader: the transaction in which a deletion begins."""

from dataclasses import dataclass

from mitosis.store.pg.database import Connection
from mitosis.store.pg.rows import fetch_one
from mitosis.store.pg.statements import load

SQL = load("groups/removal.sql")


@dataclass(frozen=True, slots=True)
class _Removed:
    id: int


async def remove_settled(connection: Connection, group_number: int) -> bool:
    """Remove the group if it is settled; the caller holds its leases and its row."""
    parameters = {"group_number": group_number}
    return await fetch_one(connection, _Removed, SQL["remove"], parameters) is not None
