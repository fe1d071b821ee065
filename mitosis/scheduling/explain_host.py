"""What a host does, and what keeps it from the task groups that wait."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from mitosis.contracts.lifecycle import LeaseState
from mitosis.scheduling.decide import decided_round
from mitosis.scheduling.explain import HostChain, chain
from mitosis.scheduling.facts import FOREVER, Lease, Progress
from mitosis.scheduling.predicates import conditions_for
from mitosis.scheduling.round import Round
from mitosis.scheduling.snapshot import Snapshot
from mitosis.scheduling.states import GroupState, HostState
from mitosis.scheduling.wording import span

GROUPS_SHOWN = 20


@dataclass(frozen=True, slots=True)
class ExplainedHost:
    """The explanation of one host."""

    lines: Sequence[str]
    """What it does: a line for each lease, or one that says why it has none. After the name of the host."""
    waiting: Sequence[tuple[int, HostChain]]
    """Task groups that wait, best first, each with the conditions for this host."""
    more: int
    """Waiting task groups that are left out of ``waiting``."""


def explain_host(snapshot: Snapshot, now: float, number: int) -> ExplainedHost:
    """Explain one host. Costs one decision."""
    round_ = decided_round(snapshot, now)
    host = snapshot.hosts[number]
    waiting = sorted(_waiting(snapshot), key=round_.rank)
    shown = [
        (group.fact.number, chain(round_, group, host, conditions_for(round_.moment, group)))
        for group in islice(waiting, GROUPS_SHOWN)
    ]
    return ExplainedHost([*_lines(round_, host)], shown, len(waiting) - len(shown))


def _waiting(snapshot: Snapshot) -> Iterator[GroupState]:
    for bucket in snapshot.buckets.values():
        yield from (snapshot.groups[key.number] for key in bucket.line)


def _lines(round_: Round, host: HostState) -> Iterator[str]:
    for lease in round_.snapshot.leases_on(host.ordinal):
        yield _lease(round_, lease)
    if host.leases:
        return
    fact = host.fact
    if not fact.in_contact:
        yield _silent(round_, host)
    elif fact.unclean:
        yield "cleans up"
    else:
        yield "is draining and has nothing left to do" if fact.draining else "is free"


def _silent(round_: Round, host: HostState) -> str:
    if host.fact.last_contact_at is None:
        return "has never been in contact"
    return f"was last seen {span(round_.now - host.fact.last_contact_at)} ago"


def _lease(round_: Round, lease: Lease) -> str:
    holder = round_.snapshot.group_of(lease).fact.name
    if lease.state is LeaseState.OFFERED:
        return f"is offered to {holder}"
    if not lease.is_live:
        winner = round_.snapshot.groups.get(lease.for_group or 0)
        after = "" if winner is None else f", then goes to {winner.fact.name}"
        return f"finishes its tasks of {holder}{after}"
    if lease.progress is Progress.STARTING:
        return f"is being set up for {holder}"
    doing = f"works for {holder}"
    if lease.idle_since is not None:
        doing = f"has been idle under {holder} for {span(round_.now - lease.idle_since)}"
    return f"{doing}{_affinity(round_, lease)}"


def _affinity(round_: Round, lease: Lease) -> str:
    if lease.affinity_until == FOREVER:
        return ""
    left = span(max(0.0, lease.affinity_until - round_.now))
    if lease.renewed:
        return f"; its lease was renewed for {left} more, except from task groups without a host"
    return f"; it stays for {left} at least while it has work"
