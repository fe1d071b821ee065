"""The assignment round: one transaction that reads what has changed, decides, and writes what was decided.

``mitosis.scheduling`` alone decides; ``kept_fleet`` has its facts, ``actions`` writes.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from mitosis.contracts.control import AssignAnswer
from mitosis.contracts.liveness import API_STALE_SECONDS
from mitosis.scheduling.actions import EndLease, Offer, Wake
from mitosis.scheduling.decide import decided_round
from mitosis.scheduling.round import Round
from mitosis.scheduling.situations import situation
from mitosis.scheduling.wake import idle_until, next_wake
from mitosis.store.kept import Kept
from mitosis.store.leases.actions import carry_out, note_hostless, note_idle
from mitosis.store.leases.capacity import end_stuck_leases
from mitosis.store.leases.decisions import record_decision
from mitosis.store.leases.doubt import end_leases_of_blamed, judge_groups, next_judgement
from mitosis.store.leases.fleet import GroupRow
from mitosis.store.leases.fleet_snapshot import Fleet
from mitosis.store.leases.kept_fleet import present_fleet, read_ahead
from mitosis.store.leases.silent_services import end_silent_registrations
from mitosis.store.pg.database import Connection
from mitosis.store.pg.rows import fetch_one
from mitosis.store.pg.statements import load
from mitosis.store.store import Store

SQL = load("leases/scheduler.sql")
CHECK_OFFERS_SECONDS = 10.0
"""While an offer is open, its manager is poked again after this long."""
LOCKED_LEASE_SECONDS = 0.5
"""A lease to end that another transaction has locked is looked at again after this long."""
LEAST_PAUSE_SECONDS = 0.1
SITUATIONS_AT_ONCE = 200
"""So many task groups have their turn at a look; each costs some 50 µs."""
IDLE_HOSTS_AT_ONCE = 20
"""If more hosts have no lease, their details are written again only when something about them changes."""
SITUATIONS_SECONDS = 20.0
"""A turn lasts so long: several looks find the same task groups."""
LOOK_SECONDS = (10.0, 60.0)
"""Shortest and longest pause before the next round while a group waits for a busy host: the idle threshold,
within these limits."""


@dataclass(frozen=True, slots=True)
class _Due:
    seconds: float | None


async def assign_round(store: Store) -> AssignAnswer:
    """Offer hosts, end and renew leases as decided, end stuck leases, and poke the hosts concerned.

    End the registrations of worker services that are silent for too long.

    The answer says when the next round is due without a poke. Rounds take turns by an advisory lock.
    """
    await judge_groups(store)
    await end_stuck_leases(store)
    silence = await end_silent_registrations(store)
    async with store.fleet.turn() as kept:
        await read_ahead(kept, store)
        async with store.database.transaction() as connection:
            return await _locked_round(connection, store, kept, silence)


async def _locked_round(
    connection: Connection, store: Store, kept: Kept, silence: float | None
) -> AssignAnswer:
    await connection.execute(SQL["lock"])
    asked_back = (await connection.execute(SQL["ask_back"])).rowcount
    fleet = await present_fleet(kept, connection, store)
    round_ = decided_round(fleet.snapshot, fleet.now)
    if any(isinstance(action, Offer | EndLease) for action in round_.actions):
        await record_decision(connection, fleet)
    done = await carry_out(connection, round_.actions, fleet.now)
    changed = asked_back + done.ended + done.renewed
    changed += await note_idle(connection, idle_until(round_))
    changed += await end_leases_of_blamed(connection)
    hostless = await note_hostless(connection, round_.hostless())
    stale = {"api_stale_after": API_STALE_SECONDS}
    poked = (await connection.execute(SQL["poke_offered"], stale)).rowcount
    if poked or changed:
        await connection.execute(SQL["notify_relay"])
    grace = await fetch_one(connection, _Due, SQL["next_ask_back"], {})
    judged_again = await next_judgement(connection)
    pauses = [grace.seconds if grace is not None else None, silence, *_pauses(round_)]
    if poked:
        pauses.append(CHECK_OFFERS_SECONDS)
    if hostless:
        pauses.append(round_.policy.starve_after_seconds)
    if done.left:
        pauses.append(LOCKED_LEASE_SECONDS)
    due = _shortest(pauses)
    return AssignAnswer(
        offered=done.offered,
        resignalled=poked - done.offered,
        next_round_in_seconds=_shortest([due, judged_again]),
        judged_again_in_seconds=judged_again,
        due_without_judgement_in_seconds=None if judged_again is None else due,
    )


def _shortest(pauses: Sequence[float | None]) -> float | None:
    """Return the seconds of the shortest pause, at least LEAST_PAUSE_SECONDS; None: there is none."""
    return min((max(one, LEAST_PAUSE_SECONDS) for one in pauses if one is not None), default=None)


@dataclass(frozen=True, slots=True)
class Seen:
    """What a look sees; ``situations`` and ``idle_hosts`` as in ``WaitingWork``."""

    actions: Sequence[str] = ()
    """What a round would do now for task groups and leases, one line each."""
    situations: Mapping[UUID, int] = field(default_factory=dict)
    idle_hosts: Mapping[UUID, int] = field(default_factory=dict)


async def would_act(store: Store) -> Seen:
    """Return what a round would do now, and what keeps hosts from task groups. Reads only."""
    async with store.fleet.turn() as kept, store.database.transaction() as connection:
        fleet = await present_fleet(kept, connection, store)
        round_ = decided_round(fleet.snapshot, fleet.now)
        return Seen(_lines(round_), _situations(round_, fleet.groups), _idle_hosts(round_, fleet))


def _situations(round_: Round, groups: Mapping[int, GroupRow]) -> Mapping[UUID, int]:
    """Return the situations of task groups with tasks. Many take turns; see ``SITUATIONS_AT_ONCE``."""
    numbers = sorted(number for number, row in groups.items() if row.goes_on)
    looks = -(-len(numbers) // SITUATIONS_AT_ONCE) or 1
    turn = int(time.monotonic() / SITUATIONS_SECONDS) % looks
    shown = numbers[turn * SITUATIONS_AT_ONCE : (turn + 1) * SITUATIONS_AT_ONCE]
    states = round_.snapshot.groups
    return {
        groups[number].task_group_id: hash(situation(round_, states[number])) for number in shown
    }


def _idle_hosts(round_: Round, fleet: Fleet) -> Mapping[UUID, int]:
    """Return the situations of hosts without a lease, if they and the task groups are few."""
    hosts = [
        host
        for host in round_.snapshot.hosts.values()
        if host.fact.in_contact and not host.leases and host.fact.number in fleet.hosts
    ]
    groups = [group for group in round_.snapshot.groups.values() if group.work.unfinished]
    if not groups or len(hosts) > IDLE_HOSTS_AT_ONCE or len(groups) > SITUATIONS_AT_ONCE:
        return {}
    waiting = sorted((group.fact.number, hash(situation(round_, group))) for group in groups)
    return {fleet.hosts[host.fact.number].manager_id: hash((*waiting,)) for host in hosts}


def _lines(round_: Round) -> Sequence[str]:
    lines = list[str]()
    for action in round_.actions:
        if isinstance(action, Offer):
            lines.append(f"host {action.host} for task group {action.group}")
        elif isinstance(action, EndLease):
            lines.append(f"end of lease {action.lease} for task group {action.for_group}")
    return lines


def _pauses(round_: Round) -> Sequence[float | None]:
    """Return the seconds until the clock alone changes the decision for a group that waits.

    Leases that are renewed are not among them: the workflow of the host asks for a round then.
    """
    wake: Wake | None = next_wake(round_)
    look = None
    if _waits_for_busy_host(round_):
        shortest, longest = LOOK_SECONDS
        look = min(max(round_.policy.leases.idle_threshold, shortest), longest)
    return [None if wake is None else wake.at - round_.now, look]


def _waits_for_busy_host(round_: Round) -> bool:
    """Return whether a task group could use a host that works for another one.

    No transaction reports that a lease runs out of work while its group is not drained: other hosts have the
    rest, or a retry is not due. So while a group waits for such a host, another round is due.
    """
    snapshot = round_.snapshot
    working = snapshot.sets.get("working")
    for bucket in snapshot.waiting.buckets() if working else ():
        group = snapshot.groups[bucket.line[0].number]
        others = working & ~snapshot.sets.get("held", group.fact.number)
        if round_.missing(group) > 0 and bucket.members & others & round_.able(group):
            return True
    return False
