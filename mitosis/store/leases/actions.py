"""Writes what a decision has decided: ends and renewals of leases, offers of hosts."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from mitosis.contracts.control import ReleaseReason
from mitosis.scheduling.actions import Action, EndLease, EndReason, Offer, Renew
from mitosis.scheduling.facts import FOREVER
from mitosis.store.leases.membership import with_membership
from mitosis.store.pg.database import Connection
from mitosis.store.pg.rows import fetch_all
from mitosis.store.pg.statements import load

SQL = load("leases/actions.sql")
OFFER = with_membership(SQL["offer"])


@dataclass(frozen=True, slots=True)
class _Held:
    group_id: int


class Done(NamedTuple):
    """What was written."""

    offered: int
    ended: int
    """Leases that start to end, and offers that were withdrawn."""
    renewed: int
    left: int
    """Leases to end that another transaction holds."""


async def carry_out(connection: Connection, actions: Iterable[Action], now: float) -> Done:
    """Write the actions of a decision in the transaction of the round, leases before groups.

    ``now``: the time of the decision.
    """
    actions = list(actions)
    ends = [action for action in actions if isinstance(action, EndLease)]
    ended = await _end(connection, ends, now)
    renewed = await _renew(connection, [one for one in actions if isinstance(one, Renew)])
    offered = await _offer(connection, [one for one in actions if isinstance(one, Offer)])
    return Done(offered, ended, renewed, len(ends) - ended)


async def _end(connection: Connection, ends: Sequence[EndLease], now: float) -> int:
    if not ends:
        return 0
    values = {
        "epochs": [end.lease for end in ends],
        "reasons": [_recorded(end.reason).value for end in ends],
        "freed_for": [end.for_group for end in ends],
        "was_idle": [end.reason is EndReason.IDLE for end in ends],
        "at_once": [end.ask_back_at <= now for end in ends],
        "ask_back_at": [
            end.ask_back_at if now < end.ask_back_at < FOREVER else None for end in ends
        ],
    }
    return (await connection.execute(SQL["end_decided"], values)).rowcount


def _recorded(reason: EndReason) -> ReleaseReason:
    """Return the reason that is recorded with the lease."""
    return ReleaseReason.DRAINED if reason is EndReason.DRAINING else ReleaseReason.MOVED


async def _renew(connection: Connection, renewals: Sequence[Renew]) -> int:
    if not renewals:
        return 0
    values = {
        "epochs": [renewal.lease for renewal in renewals],
        "until": [renewal.until for renewal in renewals],
    }
    return (await connection.execute(SQL["renew_decided"], values)).rowcount


async def note_idle(connection: Connection, until: Mapping[int, float]) -> int:
    """Note until when idle leases are safe, by their numbers, and for no others; return how many changed."""
    values = {"epochs": [*until.keys()], "until": [*until.values()]}
    return (await connection.execute(SQL["note_idle"], values)).rowcount


async def note_hostless(connection: Connection, groups: Sequence[int]) -> int:
    """Note since when these task groups have had no host, and for no others; return how many are new."""
    return (await connection.execute(SQL["note_hostless"], {"groups": list(groups)})).rowcount


async def _offer(connection: Connection, offers: Sequence[Offer]) -> int:
    """Offer hosts to groups that have not ended, if the hosts are as they were; return how many."""
    if not offers:
        return 0
    groups = sorted({offer.group for offer in offers})
    held = await fetch_all(connection, _Held, SQL["hold_groups"], {"groups": groups})
    going_on = {row.group_id for row in held}
    kept = [offer for offer in offers if offer.group in going_on]
    values = {
        "groups": [offer.group for offer in kept],
        "managers": [offer.host for offer in kept],
    }
    return (await connection.execute(OFFER, values)).rowcount
