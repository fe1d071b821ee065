"""The rights of the runs of a schedule: those of its owner, checked at each time (ADR 0016)."""

from dataclasses import dataclass
from uuid import UUID

from mitosis.contracts.errors import PermissionDenied, Unavailable
from mitosis.store.pg.rows import fetch_one
from mitosis.store.pg.statements import load
from mitosis.store.store import Store

SQL = load("schedules/rights.sql")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rights:
    schedule: str
    owner: str
    group_name: str
    may_start: bool
    stored_by: str
    is_accepted: bool


async def check_rights(
    store: Store, schedule: int, owner_id: UUID, version: int, *, is_pinned: bool
) -> None:
    """Check that the owner of a schedule may start a run of this version of its job now.

    Nothing is cached: a lost role counts at the next time. The owner has chosen the version to which a
    schedule is pinned. One that it follows must be accepted, or stored by the owner or by an administrator of
    the stack, who may do all that the owner may.

    Raises:
        PermissionDenied: they may not; says what the owner or an admin can do.
        Unavailable: the schedule has just got another owner: try again.
    """
    given = {"schedule": schedule, "owner": owner_id, "version": version}
    async with store.database.connection() as connection:
        found = await fetch_one(connection, _Rights, SQL["rights"], given)
    if found is None:
        raise Unavailable("the schedule was changed at the same time: try again")
    change = f"mitosis job schedule update {found.schedule}"
    if not found.may_start:
        raise PermissionDenied(
            f"{found.owner}, the owner of the schedule, may no longer start runs in {found.group_name};"
            f" an admin of it takes the schedule over with `{change}`",
            needed="write",
        )
    if not (is_pinned or found.is_accepted):
        raise PermissionDenied(
            f"version {version} of the job was stored by {found.stored_by}, and its run would have the"
            f" rights of {found.owner}, the owner of the schedule, who accepts it with"
            f" `{change} --accept {version}`"
        )
