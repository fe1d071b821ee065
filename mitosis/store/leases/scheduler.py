"""The assignment round: one transaction that offers hosts and ends idle leases that other groups need.

``eligibility.py`` alone decides which host may be offered to which group; this module reads its facts.
"""

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass

from mitosis.contracts.control import AssignAnswer
from mitosis.contracts.lifecycle import LeaseState
from mitosis.scheduling.costs import idle_threshold
from mitosis.scheduling.facts import Work
from mitosis.store.leases import eligibility
from mitosis.store.leases.capacity import end_stuck_leases, progress_parameters
from mitosis.store.leases.doubt import end_leases_of_quarantined, judge_groups
from mitosis.store.leases.durations import pair_durations
from mitosis.store.leases.eligibility import (
    CONDITIONS,
    CONTEST_CONDITIONS,
    Condition,
    GroupFacts,
    HostFacts,
    HostLease,
)
from mitosis.store.leases.excess import end_excess_leases
from mitosis.store.leases.lease_terms import read_settings
from mitosis.store.leases.matching import Offer, match, usable
from mitosis.store.leases.membership import with_membership
from mitosis.store.pg.database import Connection
from mitosis.store.pg.rows import fetch_all, fetch_one
from mitosis.store.pg.statements import load
from mitosis.store.store import Store

SQL = load("leases/scheduler.sql")
ROUND_HOSTS = eligibility.HOST_FACTS + "\n" + SQL["hosts_of_round"]
OFFER = with_membership(SQL["offer"])
ROUND_GROUPS = eligibility.GROUP_FACTS + "\n" + SQL["groups_of_round"]
GROUPS_PER_PAGE = 200
BEFORE_FIRST = (2**31, 0)
"""A key before those of all groups: priority, one more than any has, and number."""
CHECK_OFFERS_SECONDS = 10.0
"""While an offer is open, its manager is poked again after this long."""
LOCKED_LEASE_SECONDS = 0.5
"""A lease to end that another transaction has locked is looked at again after this long."""
LOOK_SECONDS = (10.0, 60.0)
"""Shortest and longest pause before the next round while a group waits for a busy host: the idle threshold,
within these limits."""

_OF_OTHERS = (
    *CONTEST_CONDITIONS,
    Condition(
        code="own",
        of_pair=lambda host, group: host.lease is None or host.lease.group != group.number,
        sentence=lambda *_: "serves the task group",
    ),
)


@dataclass(frozen=True, slots=True)
class _Due:
    seconds: float | None


@dataclass(frozen=True, slots=True)
class _Held:
    group_id: int


async def assign_round(store: Store) -> AssignAnswer:
    """Offer leases, end stuck ones and idle ones that other groups need, and poke the hosts concerned.

    The answer says when the next round is due without a poke. Rounds take turns by an advisory lock.
    """
    await judge_groups(store)
    await end_stuck_leases(store)
    async with store.database.transaction() as connection:
        await connection.execute(SQL["lock"])
        excess = await end_excess_leases(connection)
        facts = _Facts.of(store, connection)
        hosts = await facts.hosts()
        offers = await _match_pages(facts, usable(hosts), CONDITIONS)
        offered = await _write(connection, offers, hosts)
        contest = _Contest(facts, store)
        moves, next_idle = await contest.decide(hosts, {offer.group for offer in offers})
        if moves:
            values = {
                "epochs": [move.epoch for move in moves],
                "groups": [move.group for move in moves],
            }
            await connection.execute(SQL["move_leases"], values)
        moved = len(moves) + excess.ended + await end_leases_of_quarantined(connection)
        poked = (await connection.execute(SQL["poke_offered"])).rowcount
        if poked or moved:
            await connection.execute(SQL["notify_relay"])
        due = [
            await fetch_one(connection, _Due, SQL[name], {})
            for name in ("next_delayed", "next_failure")
        ]
    return AssignAnswer(
        offered=offered,
        resignalled=poked - offered,
        next_round_in_seconds=_next_round(due, poked, next_idle, excess.left),
    )


async def would_assign(store: Store) -> Sequence[tuple[int, int]]:
    """Return what a round would do now, as numbers of group and host: offers, else hosts that it would free.

    The statements and rules of the round, without its writes.
    """
    async with store.database.connection() as connection:
        facts = _Facts.of(store, connection)
        hosts = await facts.hosts()
        offers = await _match_pages(facts, usable(hosts), CONDITIONS)
        if offers:
            return [(offer.group, offer.manager) for offer in offers]
        moves, _ = await _Contest(facts, store).decide(hosts, ())
    return [(move.group, move.manager) for move in moves]


@dataclass(frozen=True, slots=True)
class _Facts:
    """Reads the facts of one round."""

    connection: Connection
    parameters: Mapping[str, object]

    @classmethod
    def of(cls, store: Store, connection: Connection) -> "_Facts":
        parameters = {
            **progress_parameters(store),
            "quarantine_after": store.quarantine_after,
            "group_number": None,
        }
        return cls(connection, parameters)

    async def hosts(self) -> list[HostFacts]:
        return await fetch_all(self.connection, HostFacts, ROUND_HOSTS, self.parameters)

    async def pages(self, hosts: int) -> AsyncIterator[list[GroupFacts]]:
        """Yield groups with work, best first; ready tasks are counted up to what ``hosts`` could use."""
        priority, number = BEFORE_FIRST
        while True:
            values = {
                **self.parameters,
                "after_priority": priority,
                "after_id": number,
                "hosts": hosts,
                "limit": GROUPS_PER_PAGE,
            }
            page = await fetch_all(self.connection, GroupFacts, ROUND_GROUPS, values)
            if page:
                yield page
            if len(page) < GROUPS_PER_PAGE:
                return
            priority, number = page[-1].priority, page[-1].number


@dataclass(frozen=True, slots=True)
class _Move:
    """A lease to end, and the group that gets its host."""

    epoch: int
    manager: int
    group: int


@dataclass(frozen=True, slots=True)
class _Contest:
    """Takes idle hosts from the groups that hold them (C-03)."""

    facts: _Facts
    store: Store

    async def decide(
        self, hosts: Sequence[HostFacts], served: Collection[int]
    ) -> tuple[list[_Move], float | None]:
        """Find idle leases whose hosts other groups need.

        No transaction reports that a lease runs out of work while its group is not drained (other hosts
        have the rest, or a retry is not due). So while a group waits for a busy host, another round is due.

        A group without any capacity comes first, and rounds follow for it. A group that has some, and work
        for more, gets what is idle for long enough now; looks find for it what becomes so later (P7).

        Args:
            hosts: all of the round.
            served: groups that have just been offered a host; they wait for that one first.

        Returns:
            The leases to end, and the seconds until the next one is idle for long enough.
        """
        held = {
            number: lease
            for number, host in usable(hosts, CONTEST_CONDITIONS).items()
            if (lease := _contestable(host)) is not None
        }
        of_round = {host.number: host for host in hosts if host.number in held}
        idle = {number: host for number, host in of_round.items() if not held[number].has_work}
        busy = {number: host for number, host in of_round.items() if held[number].has_work}
        needed = await self._match(idle, served)
        waits = await self._waits(needed, held)
        served = {*served, *(offer.group for offer in needed)}
        more = await self._match_for_more(idle, held, served)
        due = [
            _Move(held[offer.manager].epoch, offer.manager, offer.group)
            for offer in [*(o for o in needed if waits[o.manager] <= 0), *more]
        ]
        left = list(waits.values())
        if await self._match(busy, served):
            least = self.store.lease_terms.idle_threshold
            left.append(min(max(least, LOOK_SECONDS[0]), LOOK_SECONDS[1]))
        return due, min((seconds for seconds in left if seconds > 0), default=None)

    async def _match(self, hosts: dict[int, HostFacts], served: Collection[int]) -> list[Offer]:
        """Match groups whose leases are no capacity."""
        return await _match_pages(
            self.facts, hosts, CONTEST_CONDITIONS, besides=served, without_capacity=True
        )

    async def _match_for_more(
        self,
        idle: Mapping[int, HostFacts],
        held: Mapping[int, HostLease],
        served: Collection[int],
    ) -> list[Offer]:
        """Match groups that can use one more host with those that are idle for long enough now."""
        groups = sorted({held[number].group for number in idle})
        settings = await read_settings(self.facts.connection, self.store, groups)
        over = {
            number: host
            for number, host in idle.items()
            if (held[number].idle_seconds or 0.0) >= settings[held[number].group].idle_seconds.least
        }
        offers = await _match_pages(self.facts, over, _OF_OTHERS, besides=served)
        waits = await self._waits(offers, held)
        return [offer for offer in offers if waits[offer.manager] <= 0]

    async def _waits(
        self, moves: Sequence[Offer], held: Mapping[int, HostLease]
    ) -> Mapping[int, float]:
        """Return for each host the seconds until its lease is idle for long enough (C-35).

        That is as long as teardown and setup take on this host, within the bounds of the group that has it.
        """
        connection = self.facts.connection
        pairs = [(held[move.manager].group, move.manager) for move in moves]
        pairs += [(move.group, move.manager) for move in moves]
        durations = await pair_durations(connection, pairs)
        settings = await read_settings(
            connection, self.store, sorted({group for group, _ in pairs})
        )
        waits = {}
        for move in moves:
            lease = held[move.manager]
            loser = Work(teardown_seconds=durations[lease.group, move.manager].teardown_seconds)
            winner = Work(setup_seconds=durations[move.group, move.manager].setup_seconds)
            safe = idle_threshold(loser, winner, settings[lease.group])
            waits[move.manager] = safe - (lease.idle_seconds or 0.0)
        return waits


def _contestable(host: HostFacts) -> HostLease | None:
    """Return the host's lease if another group may take it over: it is taken and its setup is over."""
    lease = host.lease
    if lease is None or lease.state is not LeaseState.ACTIVE or lease.group not in host.warm:
        return None
    return lease


async def _match_pages(
    facts: _Facts,
    hosts: dict[int, HostFacts],
    conditions: Sequence[Condition],
    *,
    besides: Collection[int] = (),
    without_capacity: bool = False,
) -> list[Offer]:
    """Match page after page of groups while there are hosts; those used are removed from ``hosts``.

    Args:
        facts: of the round.
        hosts: those that are left.
        conditions: those that must hold.
        besides: groups that do not count.
        without_capacity: only groups whose leases are no capacity count.
    """
    offers: list[Offer] = []
    if not hosts:
        return offers
    async for page in facts.pages(len(hosts)):
        page = [
            group
            for group in page
            if group.number not in besides and not (without_capacity and group.capacity)
        ]
        offers += match(page, hosts, conditions)
        if not hosts:
            break
    return offers


async def _write(connection: Connection, offers: list[Offer], hosts: Sequence[HostFacts]) -> int:
    """Write the offers of groups that have not ended, to hosts that are as they were; return how many."""
    if not offers:
        return 0
    groups = sorted({offer.group for offer in offers})
    held = await fetch_all(connection, _Held, SQL["hold_groups"], {"groups": groups})
    going_on = {row.group_id for row in held}
    kept = [offer for offer in offers if offer.group in going_on]
    draining = {host.number: host.draining for host in hosts}
    values = {
        "groups": [offer.group for offer in kept],
        "managers": [offer.manager for offer in kept],
        "draining": [draining[offer.manager] for offer in kept],
    }
    return (await connection.execute(OFFER, values)).rowcount


def _next_round(
    due: Sequence[_Due | None], open_offers: int, next_idle: float | None, locked_leases: int
) -> float | None:
    candidates = [CHECK_OFFERS_SECONDS] if open_offers else []
    if locked_leases:
        candidates.append(LOCKED_LEASE_SECONDS)
    if next_idle is not None:
        candidates.append(max(next_idle, 0.1))
    candidates += [
        max(row.seconds, 0.1) for row in due if row is not None and row.seconds is not None
    ]
    return min(candidates, default=None)
