"""Why hosts do not serve a task group, and the smallest change after which one would.

The conditions are those of the decision (``predicates``, ``claims``); who took a host, and with which rank,
is read from its actions.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from mitosis.scheduling import contest_sentences, sentences
from mitosis.scheduling.actions import EndLease, Offer, gains_of
from mitosis.scheduling.claims import Objection, claim
from mitosis.scheduling.decide import decided_round
from mitosis.scheduling.predicates import Condition, conditions_for
from mitosis.scheduling.round import Round
from mitosis.scheduling.smallest_change import Changes, smallest_change
from mitosis.scheduling.snapshot import Snapshot
from mitosis.scheduling.states import GroupState, HostState


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

    @property
    def obstacles(self) -> Sequence[Step]:
        """Return the conditions that do not hold; for a busy host, what protects its leases instead."""
        failed = [step for step in self.steps if not step.holds]
        if any(step.code.startswith("held") for step in self.steps):
            failed = [step for step in failed if step.code != "busy"]
        return failed


@dataclass(frozen=True, slots=True)
class Explained:
    """The explanation of one task group."""

    gets: Sequence[Offer | EndLease]
    """The actions of the decision that give it hosts; empty: it gets none now."""
    chains: Sequence[HostChain]
    """Of the hosts that were asked for, in the order of their numbers."""
    smallest: Changes | None
    """None: it gets a host now, has ended, or no single host can be made to serve it."""


LEFT_OVER = ("enough", "max_managers", "next_round")
"""The codes of hosts that the task group does not get although nothing on them keeps them from it."""


def explain_group(
    snapshot: Snapshot,
    now: float,
    number: int,
    shown: Collection[int] | None = None,
    *,
    changes: bool = True,
) -> Explained:
    """Explain one task group. Costs one copy of the snapshot and up to 100 decisions.

    Args:
        snapshot: all facts.
        now: their time.
        number: of the task group.
        shown: the hosts whose chains are wanted; None: all.
        changes: look for the smallest change, among all hosts.
    """
    round_ = decided_round(snapshot, now)
    group = snapshot.groups[number]
    gets = gains_of(round_.actions, number)
    conditions = conditions_for(round_.moment, group)
    those = snapshot.hosts.keys() if shown is None else snapshot.hosts.keys() & {*shown}
    return Explained(
        gets=gets,
        chains=[chain(round_, group, snapshot.hosts[of], conditions) for of in sorted(those)],
        smallest=smallest_change(round_, group, conditions) if changes and not gets else None,
    )


def chain(
    round_: Round, group: GroupState, host: HostState, conditions: Sequence[Condition]
) -> HostChain:
    """Return all conditions for one host, as the decision has left them.

    ``conditions``: those of :func:`conditions_for` this task group.
    """
    steps: list[Step] = []
    for predicate, passing in conditions:
        holds = bool(passing >> host.ordinal & 1)
        sentence = "" if holds else predicate.sentence(round_.moment, group, host)
        steps.append(Step(predicate.code, holds, sentence))
    failed = {step.code for step in steps if not step.holds}
    leases = [*_leases(round_, group, host)] if "busy" in failed else []
    steps += leases
    can_be_taken = failed == {"busy"} and bool(leases) and all(step.holds for step in leases)
    if not failed or can_be_taken:
        steps.append(_given_to(round_, group, host))
    return HostChain(host.fact.number, steps)


def _leases(round_: Round, group: GroupState, host: HostState) -> Iterator[Step]:
    """Yield what protects each lease on the host from the task group."""
    for lease in round_.snapshot.leases_on(host.ordinal):
        end = _end_of(round_, lease.number)
        if end is not None and end.for_group is not None:
            own = end.for_group == group.fact.number
            text = "" if own else contest_sentences.taken_for(round_, group, end)
            yield Step("held" if own else "held_ending", own, text)
            continue
        right = claim(round_, group, lease)
        if isinstance(right, Objection):
            text = contest_sentences.OBJECTIONS[right.kind](round_, group, lease, right)
            yield Step(f"held_{right.kind}", False, text)
        else:
            yield Step("held", True)


def _end_of(round_: Round, lease: int) -> EndLease | None:
    if lease not in round_.ended:
        return None
    ends = (action for action in round_.actions if isinstance(action, EndLease))
    return next(action for action in ends if action.lease == lease)


def _given_to(round_: Round, group: GroupState, host: HostState) -> Step:
    """Return who got a host that nothing keeps from the task group, or why it is left over."""
    if any(gain.host == host.fact.number for gain in gains_of(round_.actions, group.fact.number)):
        return Step("rank", True)
    winner = _winner(round_, host.fact.number)
    if winner is not None:
        return Step("rank", False, contest_sentences.given_to(round_, group, winner))
    return _left_over(round_, group)


def _left_over(round_: Round, group: GroupState) -> Step:
    """Return why the task group does not get a host more than the decision gives it."""
    given, moment = round_.given(group), round_.moment
    held, most = moment.held(group), group.fact.max_managers
    if round_.missing(group) > 0:
        actions = round_.policy.actions_per_round
        made = f"this one has made {len(round_.actions)} of at most {actions} changes"
        return Step("next_round", not round_.is_over, f"waits for the next round: {made}")
    if most is not None and held.live + held.ending + held.promised + given >= most:
        line = sentences.held_of_most(moment, group, given)
        return Step("max_managers", False, f"is not needed: the task group has {line}")
    line = sentences.held_of_useful(moment, group, given)
    return Step("enough", False, f"is not needed: the task group has {line}")


def _winner(round_: Round, host: int) -> Offer | None:
    offers = (action for action in round_.actions if isinstance(action, Offer))
    return next((offer for offer in offers if offer.host == host), None)
