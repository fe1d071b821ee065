"""What a host does, what keeps it from the task groups with work, and the smallest change that ends this."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from math import ceil, floor

from mitosis.contracts.lifecycle import LeaseState
from mitosis.scheduling import sentences
from mitosis.scheduling.actions import EndLease, Offer
from mitosis.scheduling.decide import decided_round
from mitosis.scheduling.explain import HostChain, chain
from mitosis.scheduling.facts import FOREVER, Group, Lease, Progress
from mitosis.scheduling.predicates import conditions_for
from mitosis.scheduling.round import Round
from mitosis.scheduling.smallest_change import Changes, smallest_change_on
from mitosis.scheduling.snapshot import Snapshot
from mitosis.scheduling.states import GroupState, HostState
from mitosis.scheduling.wording import exact

GROUPS_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Doing:
    """What a host does for one lease, or why it has none."""

    code: str
    """Stable: offered, leaving, setup, working, idle; without a lease no_contact, cleanup, draining, free."""
    line: str
    """Printed after the name of the host."""

    @property
    def is_of_use(self) -> bool:
        """Whether it serves a task group now, or will."""
        return self.code in ("offered", "leaving", "setup", "working")


@dataclass(frozen=True, slots=True)
class ExplainedHost:
    """The explanation of one host."""

    doing: Sequence[Doing]
    """One for each lease; without a lease, one that says why."""
    gets: Sequence[Offer | EndLease]
    """The actions of the decision about it; empty: it stays as it is."""
    waiting: Sequence[tuple[int, HostChain]]
    """Task groups with work that it does not serve, those that wait for a host first, then by rank; each
    with the conditions for this host."""
    more: int
    """Such task groups that are left out of ``waiting``."""
    smallest: Changes | None
    """None: it serves a task group or is given to one, or there is none that a change would bring to it."""

    @property
    def is_of_use(self) -> bool:
        """Whether it serves a task group now, or will without any change."""
        return bool(self.gets) or any(one.is_of_use for one in self.doing)


def _all(_: Group) -> bool:
    return True


def explain_host(
    snapshot: Snapshot, now: float, number: int, may_show: Callable[[Group], bool] = _all
) -> ExplainedHost:
    """Explain one host. Costs one copy of the snapshot and up to 50 decisions.

    ``may_show``: whether a task group with work may be named; the others are only counted.
    """
    round_ = decided_round(snapshot, now)
    host = snapshot.hosts[number]
    candidates = sorted(_candidates(round_, host), key=lambda group: _order(round_, group))
    named = [group for group in candidates if may_show(group.fact)]
    shown = [(group, conditions_for(round_.moment, group)) for group in islice(named, GROUPS_SHOWN)]
    doing = [*_doing(round_, host)]
    gets = [
        action
        for action in round_.actions
        if isinstance(action, Offer | EndLease) and action.host == number
    ]
    explained = ExplainedHost(
        doing,
        gets,
        [(group.fact.number, chain(round_, group, host, passing)) for group, passing in shown],
        len(candidates) - len(shown),
        None,
    )
    if explained.is_of_use:
        return explained
    return replace(explained, smallest=smallest_change_on(round_, host, shown))


def _candidates(round_: Round, host: HostState) -> Iterator[GroupState]:
    """Yield the task groups that go on, have unfinished tasks, and have no lease on the host."""
    own = {lease.group for lease in round_.snapshot.leases_on(host.ordinal)}
    for number, group in round_.snapshot.groups.items():
        if group.fact.goes_on and group.work.unfinished > 0 and number not in own:
            yield group


def _order(round_: Round, group: GroupState) -> tuple[object, ...]:
    return group.bucket is None, round_.rank(group)


def _doing(round_: Round, host: HostState) -> Iterator[Doing]:
    for lease in round_.snapshot.leases_on(host.ordinal):
        yield _lease(round_, lease)
    if host.leases:
        return
    fact = host.fact
    if not fact.in_contact:
        yield Doing("no_contact", sentences.silent(round_.moment, fact.last_contact_at))
    elif fact.unclean:
        yield Doing("cleanup", f"cleans up{f': {fact.debt}' if fact.debt else ''}")
    elif fact.draining:
        yield Doing("draining", "is draining and has nothing left to do")
    else:
        yield Doing("free", "is free")


def _lease(round_: Round, lease: Lease) -> Doing:
    holder = round_.snapshot.group_of(lease).fact.name
    if lease.state is LeaseState.OFFERED:
        return Doing("offered", f"is offered to {holder}")
    if not lease.is_live:
        winner = round_.snapshot.groups.get(lease.for_group or 0)
        after = "" if winner is None else f", then goes to {winner.fact.name}"
        return Doing("leaving", f"finishes its tasks of {holder}{after}")
    if lease.progress is Progress.STARTING:
        return Doing("setup", f"is being set up for {holder}")
    if lease.idle_since is None:
        return Doing("working", f"works for {holder}{_affinity(round_, lease)}")
    idle = exact(round_.now - lease.idle_since, floor)
    return Doing("idle", f"has been idle under {holder} for {idle}{_affinity(round_, lease)}")


def _affinity(round_: Round, lease: Lease) -> str:
    if lease.affinity_until == FOREVER:
        return ""
    left = exact(max(0.0, lease.affinity_until - round_.now), ceil)
    if lease.renewed:
        return f"; its lease was renewed for {left} more, except from task groups without a host"
    return f"; it stays for {left} at least while it has work"
