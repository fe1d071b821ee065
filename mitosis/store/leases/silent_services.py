"""The end of registrations of worker services that are silent for too long, with their leases (P10)."""

from dataclasses import dataclass

from mitosis.contracts.control import ReleaseReason
from mitosis.store.leases.service_leases import end_leases_of_services
from mitosis.store.pg.rows import fetch_all
from mitosis.store.pg.statements import load
from mitosis.store.store import Store

SQL = load("leases/silent_services.sql")
ENDED_AT_ONCE = 100
"""So many registrations are ended in one transaction."""


@dataclass(frozen=True, slots=True)
class _Silence:
    ended: list[int]
    """Numbers of services."""
    next_seconds: float | None


async def end_silent_registrations(store: Store) -> float | None:
    """End the registrations of services that are silent for too long; requeue what they held.

    Returns:
        Seconds until the next one can be over; None if no service is registered.
    """
    parameters = {"most": ENDED_AT_ONCE}
    while True:
        async with store.database.transaction() as connection:
            (found,) = await fetch_all(connection, _Silence, SQL["end_silent"], parameters)
            if found.ended:
                await end_leases_of_services(
                    connection, found.ended, ReleaseReason.LOST, charge=True
                )
        if len(found.ended) < ENDED_AT_ONCE:
            return found.next_seconds
