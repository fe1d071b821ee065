"""Why hosts do not serve a task group, and the smallest change after which one would.

The conditions are those of the decision (``predicates``, ``claims``); who took a host, and with which rank,
is read from its actions. A change is returned only if a decision with its effect leads to a lease.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mitosis.scheduling import contest_sentences
from mitosis.scheduling.actions import EndLease, Offer, Renew
from mitosis.scheduling.changes import Change, ChangeKind, apply_change
from mitosis.scheduling.claims import Objection, ObjectionKind, claim
from mitosis.scheduling.decide import decided_round
from mitosis.scheduling.facts import FOREVER, Group, Lease, Work
from mitosis.scheduling.host_sets import Hosts
from mitosis.scheduling.predicates import PREDICATES
from mitosis.scheduling.remedies import priority_above, remedy, wait_until
from mitosis.scheduling.round import Round
from mitosis.scheduling.snapshot import Snapshot
from mitosis.scheduling.states import GroupState, HostState

TRIED = 12
"""So many of the cheapest changes are tried."""
RAISED = 8
"""So often the priority is raised above another task group that took the host."""


@dataclass(frozen=True, slots=True)
class Step:
    """One condition for one host."""

    code: str
    holds: bool
    sentence: str = ""
    """What is in the way, with the value and the threshold. Printed after the name of the host."""


@dataclass(frozen=True, slots=True)
class HostChain:
    """All conditions for one host, in their order; the last one is about its leases or the better ranks."""

    host: int
    steps: Sequence[Step]

    @property
    def first_obstacle(self) -> Step | None:
        """Return the first condition that does not hold; None: the decision gives it to the task group."""
        return next((step for step in self.steps if not step.holds), None)


@dataclass(frozen=True, slots=True)
class Changes:
    """Changes that lead to a lease together."""

    changes: Sequence[Change]

    @property
    def line(self) -> str:
        """Return all of them in one line."""
        return ", then ".join(change.line for change in self.changes)


@dataclass(frozen=True, slots=True)
class Explained:
    """The explanation of one task group."""

    gets: Sequence[Offer | EndLease]
    """The actions of the decision that give it hosts; empty: it gets none now."""
    chains: Sequence[HostChain]
    """Hosts in the order of their numbers."""
    smallest: Changes | None
    """None: it gets a host now, has ended, or no single host can be made to serve it."""


def explain_group(snapshot: Snapshot, now: float, number: int) -> Explained:
    """Explain one task group for all hosts. Costs up to some hundred decisions on copies of the snapshot."""
    round_ = decided_round(snapshot, now)
    group = snapshot.groups[number]
    gets = gains_of(round_, number)
    hosts = [snapshot.hosts[of] for of in sorted(snapshot.hosts)]
    return Explained(
        gets=gets,
        chains=[chain(round_, group, host) for host in hosts],
        smallest=None if gets else _smallest(round_, group, hosts),
    )


def plan_group(snapshot: Snapshot, now: float, group: Group, work: Work) -> Explained:
    """Explain a task group that does not exist yet. The snapshot stays as it is."""
    planned = snapshot.copy()
    planned.put_group(group, work)
    return explain_group(planned, now, group.number)


def gains_of(round_: Round, group: int) -> Sequence[Offer | EndLease]:
    """Return the actions that give hosts to a task group."""
    return [
        action
        for action in round_.actions
        if (isinstance(action, Offer) and action.group == group)
        or (isinstance(action, EndLease) and action.for_group == group)
    ]


def chain(round_: Round, group: GroupState, host: HostState) -> HostChain:
    """Return all conditions for one host, as the decision has left them."""
    steps = [*_conditions(round_, group, host)]
    if all(step.holds for step in steps):
        steps.append(_given_to(round_, group, host))
    elif any(not step.holds and step.code == "busy" for step in steps):
        steps += _leases(round_, group, host)
    return HostChain(host.fact.number, steps)


def _conditions(round_: Round, group: GroupState, host: HostState) -> Iterator[Step]:
    for predicate in PREDICATES:
        holds = predicate.holds(round_.moment, group, host)
        sentence = "" if holds else predicate.sentence(round_.moment, group, host)
        yield Step(predicate.code, holds, sentence)


def _leases(round_: Round, group: GroupState, host: HostState) -> Iterator[Step]:
    """Yield what protects each lease on the host from the task group."""
    for lease in round_.snapshot.leases_on(host.ordinal):
        right = claim(round_, group, lease)
        if isinstance(right, Objection):
            text = contest_sentences.OBJECTIONS[right.kind](round_, group, lease, right)
            yield Step(f"held_{right.kind}", False, text)
        else:
            yield Step("held", True)


def _given_to(round_: Round, group: GroupState, host: HostState) -> Step:
    winner = _winner(round_, host.fact.number)
    if winner is None or winner.group == group.fact.number:
        return Step("rank", True)
    return Step("rank", False, contest_sentences.given_to(round_, group, winner))


def _winner(round_: Round, host: int) -> Offer | None:
    offers = (action for action in round_.actions if isinstance(action, Offer))
    return next((offer for offer in offers if offer.host == host), None)


# --- the smallest change ----------------------------------------------------------------------------------


def _smallest(round_: Round, group: GroupState, hosts: Sequence[HostState]) -> Changes | None:
    """Return the cheapest changes that lead to a lease, confirmed by decisions."""
    found = [needed for host in hosts if (needed := _needed(round_, group, host)) is not None]
    found.sort(key=lambda changes: sum(change.price for change in changes))
    confirmed = [
        changes
        for needed in found[:TRIED]
        if (changes := _confirmed(round_, group, needed)) is not None
    ]
    return min(confirmed, key=lambda one: sum(c.price for c in one.changes), default=None)


def _needed(round_: Round, group: GroupState, host: HostState) -> list[Change] | None:
    """Return the changes that make every condition hold for a host; None if no changes can."""
    changes: list[Change] = []
    for predicate in PREDICATES:
        if predicate.holds(round_.moment, group, host):
            continue
        if predicate.code == "busy":
            made = _freed(round_, group, host)
        else:
            one = remedy(predicate.code, round_.moment, group, host)
            made = None if one is None else [one]
        if made is None:
            return None
        changes += (change for change in made if change not in changes)
    return [_longest_wait(changes), *_without_waits(changes)] if _waits(changes) else changes


def _waits(changes: Sequence[Change]) -> list[Change]:
    return [change for change in changes if change.wait_seconds > 0]


def _longest_wait(changes: Sequence[Change]) -> Change:
    return max(_waits(changes), key=lambda change: change.wait_seconds)


def _without_waits(changes: Sequence[Change]) -> list[Change]:
    return [change for change in changes if change.wait_seconds <= 0]


def _freed(round_: Round, group: GroupState, host: HostState) -> list[Change] | None:
    """Return the changes after which leases of the host can be ended for the task group."""
    options = []
    for lease in round_.snapshot.leases_on(host.ordinal):
        right = claim(round_, group, lease)
        changes = _against(round_, group, host, right) if isinstance(right, Objection) else []
        if changes is not None:
            options.append((sum(change.price for change in changes), lease.number, changes))
    options.sort(key=lambda option: option[:2])
    # A host that is too small gets another plan first; see `remedies`.
    demand = host.fact.capacity.least(group.fact.demand)
    room, needed = host.free, list[Change]()
    if room.covers(demand):
        return needed
    for _, number, changes in options:
        lease = round_.snapshot.leases[number]
        room = room.plus(round_.snapshot.group_of(lease).fact.demand)
        needed += changes
        if room.covers(demand):
            return needed
    return None


def _against(
    round_: Round, group: GroupState, host: HostState, objection: Objection
) -> list[Change] | None:
    """Return the changes that end what protects a lease."""
    if objection.until < FOREVER:
        why = contest_sentences.wait(objection.kind, host)
        return [wait_until(round_.moment, group, host, objection.until, why)]
    if objection.kind is not ObjectionKind.RANK:
        return None
    leases = round_.snapshot.leases_on(host.ordinal)
    raised = priority_above(group, max(_priority(round_, lease) for lease in leases))
    at = max(lease.affinity_until for lease in leases)
    hostless = not round_.leases(group) and all(lease.renewed for lease in leases)
    if at <= round_.now or hostless:
        return [raised]
    if at == FOREVER:
        return None
    why = contest_sentences.wait(ObjectionKind.AFFINITY, host)
    return [raised, wait_until(round_.moment, group, host, at, why)]


def _priority(round_: Round, lease: Lease) -> int:
    return round_.snapshot.group_of(lease).fact.priority


def _confirmed(round_: Round, group: GroupState, needed: Sequence[Change]) -> Changes | None:
    """Return the changes if they lead to a lease, with a higher priority where another group goes first."""
    changes = list(needed)
    number = group.fact.number
    for _ in range(RAISED):
        tried = _tried(round_, changes)
        if gains_of(tried, number):
            return Changes(tuple(changes))
        state = tried.snapshot.groups[number]
        above = _highest_winner(tried, state.fact.members)
        if above is None or above < state.fact.priority:
            return None
        others = [change for change in changes if change.kind is not ChangeKind.PRIORITY]
        changes = [priority_above(group, above), *others]
    return None


def _tried(round_: Round, changes: Sequence[Change]) -> Round:
    """Return the decision after these changes."""
    copied, now = round_.snapshot.copy(), round_.now
    for change in changes:
        now = apply_change(copied, change, now)
    return decided_round(copied, now)


def _highest_winner(round_: Round, hosts: Hosts) -> int | None:
    """Return the highest priority of the task groups that got one of these hosts."""
    found = None
    for action in round_.actions:
        if isinstance(action, Renew) or not hosts >> round_.snapshot.ordinal(action.host) & 1:
            continue
        number = action.group if isinstance(action, Offer) else action.for_group
        if number is not None:
            priority = round_.snapshot.groups[number].fact.priority
            found = priority if found is None else max(found, priority)
    return found
