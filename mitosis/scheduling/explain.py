"""Why hosts do not serve a task group, and the smallest change after which one would.

The conditions are those of the decision (``predicates``, ``claims``); who took a host, and with which rank,
is read from its actions.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mitosis.scheduling import contest_sentences
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
        if any(step.code.startswith("held") for step in failed):
            failed = [step for step in failed if step.code != "busy"]
        return failed


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
    """Explain one task group for all hosts. Costs one copy of the snapshot and up to 48 decisions."""
    round_ = decided_round(snapshot, now)
    group = snapshot.groups[number]
    gets = gains_of(round_.actions, number)
    hosts = [snapshot.hosts[of] for of in sorted(snapshot.hosts)]
    conditions = conditions_for(round_.moment, group)
    return Explained(
        gets=gets,
        chains=[chain(round_, group, host, conditions) for host in hosts],
        smallest=None if gets else smallest_change(round_, group, hosts, conditions),
    )


def chain(
    round_: Round, group: GroupState, host: HostState, conditions: Sequence[Condition]
) -> HostChain:
    """Return all conditions for one host, as the decision has left them.

    ``conditions``: those of :func:`conditions_for` this task group.
    """
    steps = []
    for predicate, passing in conditions:
        holds = bool(passing >> host.ordinal & 1)
        sentence = "" if holds else predicate.sentence(round_.moment, group, host)
        steps.append(Step(predicate.code, holds, sentence))
    if all(step.holds for step in steps):
        steps.append(_given_to(round_, group, host))
    elif any(not step.holds and step.code == "busy" for step in steps):
        steps += _leases(round_, group, host)
    return HostChain(host.fact.number, steps)


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
