"""Properties of every decision, in random fleets: what it does is allowed, and it leaves nothing undone."""

from collections import Counter
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import HealthCheck, assume, given, settings

from mitosis.contracts.host_failures import HostFailureKind
from mitosis.scheduling.actions import Action, EndLease, EndReason, Offer, Renew, Wake
from mitosis.scheduling.decide import decide
from mitosis.scheduling.explain import explain_group
from mitosis.scheduling.facts import Capacity, Failure, Group, Host, Lease
from mitosis.scheduling.policy import Policy
from mitosis.scheduling.sizes import missing_leases
from mitosis.scheduling.snapshot import Snapshot
from mitosis.scheduling.states import HostState
from tests.support.carrying_out import carry_out, end_what_ends
from tests.support.examples import examples
from tests.support.random_fleets import contested_fleets, fleets
from tests.support.scheduling import HOUR, NOW, Fleet

EXAMPLES = settings(
    max_examples=examples(12), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
FEW = settings(EXAMPLES, max_examples=examples(5))


# --- the rules once more, in plain words over plain facts ------------------------------------------------


def blocks(failure: Failure, group: Group, now: float) -> bool:
    if failure.kind is HostFailureKind.TASKS_FAILED:
        return False
    if failure.kind is not HostFailureKind.UNREACHABLE and failure.group != group.number:
        return False
    if failure.kind in (HostFailureKind.SETUP_FAILED, HostFailureKind.SUSPECTED):
        return True
    return failure.next_at is not None and failure.next_at > now


def may_serve(snapshot: Snapshot, group: Group, host: Host, now: float) -> bool:
    """Whether the host could serve the task group, were it free."""
    return (
        host.in_contact
        and not host.draining
        and group.user_group in host.serves
        and bool(group.members >> snapshot.ordinal(host.number) & 1)
        and host.capacity.covers(group.demand)
        and not any(blocks(failure, group, now) for failure in host.failures)
    )


def wants_more(snapshot: Snapshot, number: int) -> int:
    state = snapshot.groups[number]
    if not state.fact.goes_on:
        return 0
    fact = state.fact
    return missing_leases(state.work, fact.workers, fact.max_managers, state.held, snapshot.policy)


def is_idle_for(snapshot: Snapshot, lease: Lease, group: int, now: float) -> bool:
    """Whether the lease has been idle past the threshold of this pair (C-35)."""
    holder = snapshot.groups[lease.group]
    if lease.idle_since is None or not lease.contestable or lease.group == group:
        return False
    terms = snapshot.policy.settings_of(holder.fact.leases)
    pair = holder.work.teardown_seconds + snapshot.groups[group].work.setup_seconds
    return now - lease.idle_since >= max(terms.idle_threshold, min(terms.longest_idle, pair))


def may_move(snapshot: Snapshot, host: Host, now: float) -> bool:
    return sum(at > now - HOUR for at in host.moved_at) < snapshot.policy.moves_per_hour


def rounds(snapshot: Snapshot, now: float, *, ends: bool) -> Iterator[Sequence[Action]]:
    """Decide and carry out until nothing is left to do; ``ends``: leases that are ENDING end at once."""
    for _ in range(60):
        actions = [one for one in decide(snapshot, now) if not isinstance(one, Wake)]
        if not actions:
            return
        yield actions
        carry_out(snapshot, actions, now)
        if ends:
            end_what_ends(snapshot, now)
    pytest.fail("hosts move for ever at one time")


# --- the properties ----------------------------------------------------------------------------------------


@EXAMPLES
@given(fleets())
def test_every_offer_is_allowed_and_no_host_is_given_more_than_it_has(fleet: Fleet) -> None:
    snapshot = fleet.snapshot
    offers = [action for action in decide(snapshot, NOW) if isinstance(action, Offer)]
    used = {number: host.free for number, host in snapshot.hosts.items()}
    for offer in offers:
        group, host = snapshot.groups[offer.group].fact, snapshot.hosts[offer.host].fact
        assert may_serve(snapshot, group, host, NOW)
        assert not host.unclean
        assert used[offer.host].covers(group.demand)
        used[offer.host] = used[offer.host].minus(group.demand)
    for number, gained in Counter(offer.group for offer in offers).items():
        most, held = snapshot.groups[number].fact.max_managers, snapshot.groups[number].held
        assert most is None or held.live + held.ending + gained <= most


@EXAMPLES
@given(fleets() | contested_fleets())
def test_every_contested_end_is_allowed(fleet: Fleet) -> None:
    snapshot = fleet.snapshot
    actions = decide(snapshot, NOW)
    ends = [action for action in actions if isinstance(action, EndLease)]
    assert len({end.lease for end in ends}) == len(ends)
    for end in ends:
        lease = snapshot.leases[end.lease]
        assert lease.is_live
        if end.for_group is None:
            assert not end.reason.is_contested
            continue
        winner, host = snapshot.groups[end.for_group], snapshot.hosts[end.host].fact
        assert lease.contestable
        assert lease.group != end.for_group
        assert may_serve(snapshot, winner.fact, host, NOW)
        if end.reason is EndReason.IDLE:
            assert is_idle_for(snapshot, lease, end.for_group, NOW)
        else:
            assert may_move(snapshot, host, NOW)
            assert lease.affinity_until <= NOW or lease.renewed
            holder = snapshot.groups[lease.group].fact
            starved = winner.work.hostless_since is not None
            assert winner.fact.priority >= holder.priority or starved


@EXAMPLES
@given(fleets())
def test_work_is_conserved(fleet: Fleet) -> None:
    """No host that may serve a task group that wants one stays free, or idle past its threshold.

    A task group that loses a lease is served by the next decision, and a host is taken from once in each.
    """
    snapshot = fleet.snapshot
    actions = decide(snapshot, NOW)
    carry_out(snapshot, actions, NOW)
    ends = [action for action in actions if isinstance(action, EndLease)]
    losers = {snapshot.leases[end.lease].group for end in ends}
    for number in snapshot.groups:
        if wants_more(snapshot, number) > 0 and number not in losers:
            check_no_host_is_left(snapshot, number, {end.host for end in ends})


@FEW
@given(fleets() | contested_fleets())
def test_when_decisions_have_come_to_rest_nothing_at_all_is_left(fleet: Fleet) -> None:
    snapshot = fleet.snapshot
    for actions in rounds(snapshot, NOW, ends=False):
        assert actions
    for number in snapshot.groups:
        if wants_more(snapshot, number) > 0:
            check_no_host_is_left(snapshot, number, set())


def check_no_host_is_left(snapshot: Snapshot, number: int, taken_from: set[int]) -> None:
    group = snapshot.groups[number].fact
    for host in snapshot.hosts.values():
        if not may_serve(snapshot, group, host.fact, NOW):
            continue
        if host.free.covers(group.demand):
            assert host.fact.unclean
        elif host.fact.number not in taken_from:
            assert not idle_room(snapshot, host, number).covers(group.demand)


def idle_room(snapshot: Snapshot, host: HostState, group: int) -> Capacity:
    """What the host has free or under leases that are idle for long enough for the task group."""
    room = host.free
    for lease in (snapshot.leases[number] for number in host.leases):
        if is_idle_for(snapshot, lease, group, NOW):
            room = room.plus(snapshot.groups[lease.group].fact.demand)
    return room


def goes_first(snapshot: Snapshot, group: Group, holder: Group) -> bool:
    """C-31 in plain words, for a task group that has not starved."""
    if group.priority != holder.priority:
        return group.priority > holder.priority
    if group.user_group == holder.user_group:
        mine, theirs = (snapshot.groups[one.number].held for one in (group, holder))
        fewer, more = mine.live + mine.promised, theirs.live + theirs.promised
    else:
        fewer, more = (snapshot.share.get(one.user_group, 0) for one in (group, holder))
    return more - fewer >= 2 or (fewer == 0 and more > 0)


@EXAMPLES
@given(contested_fleets())
def test_no_lease_is_renewed_that_a_waiting_group_could_have_taken(fleet: Fleet) -> None:
    snapshot = fleet.snapshot
    actions = decide(snapshot, NOW)
    carry_out(snapshot, actions, NOW)
    ended = [snapshot.leases[one.lease].group for one in actions if isinstance(one, EndLease)]
    lost = {snapshot.groups[number].fact.user_group for number in ended}
    for renewal in (action for action in actions if isinstance(action, Renew)):
        lease = snapshot.leases[renewal.lease]
        host, holder = snapshot.hosts[lease.host], snapshot.groups[lease.group].fact
        if len(host.leases) > 1 or not may_move(snapshot, host.fact, NOW):
            continue
        for number, state in snapshot.groups.items():
            group = state.fact
            if wants_more(snapshot, number) <= 0 or group.user_group in lost or group == holder:
                continue
            room = host.free.plus(holder.demand).covers(group.demand)
            if room and may_serve(snapshot, group, host.fact, NOW):
                assert not goes_first(snapshot, group, holder)


@FEW
@given(fleets() | contested_fleets())
def test_hosts_come_to_rest(fleet: Fleet) -> None:
    """However often decisions follow each other at one time, no host is moved to and fro."""
    for actions in rounds(fleet.snapshot, NOW, ends=True):
        assert actions


@FEW
@given(fleets() | contested_fleets())
def test_the_clock_alone_changes_nothing_before_the_wake(fleet: Fleet) -> None:
    snapshot = fleet.snapshot
    for actions in rounds(snapshot, NOW, ends=True):
        assert actions
    (*_, last) = [None, *decide(snapshot, NOW)]
    wake = last.at if isinstance(last, Wake) else NOW + 10 * HOUR
    assert wake > NOW
    for now in (NOW + (wake - NOW) / 2, wake - 0.001):
        early = [one for one in decide(snapshot, now) if not isinstance(one, (Wake, Renew))]
        assert [one for one in early if getattr(one, "reason", None) is not EndReason.NO_WORK] == []


@FEW
@given(fleets())
def test_an_explained_change_leads_to_a_lease_and_every_refusal_has_a_reason(fleet: Fleet) -> None:
    snapshot = fleet.snapshot
    for number in snapshot.groups:
        found = explain_group(snapshot, NOW, number)
        if found.gets:
            assert found.smallest is None
            continue
        for chain in found.chains:
            assert chain.first_obstacle is not None
            assert chain.first_obstacle.sentence


@EXAMPLES
@given(fleets())
def test_a_decision_in_parts_is_the_whole_decision(fleet: Fleet) -> None:
    """With few actions a round, so many rounds lead to as many leases."""
    whole = [one for one in decide(fleet.snapshot, NOW) if not isinstance(one, Wake)]
    assume(whole)
    facts = fleet.snapshot
    capped = Snapshot.of(
        Policy(actions_per_round=1),
        [state.fact for state in facts.hosts.values()],
        [(state.fact, state.work) for state in facts.groups.values()],
        facts.leases.values(),
    )
    *first, wake = decide(capped, NOW)
    assert first == whole[: len(first)]
    # The leases of a host that make room for one task group end together.
    assert len(first) == 1 or len({one.host for one in first if isinstance(one, EndLease)}) == 1
    assert isinstance(wake, Wake)
    assert wake.at == NOW
