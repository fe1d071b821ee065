"""The decision: from a snapshot to offers, ends of leases, renewals, and the time of the next decision."""

from collections.abc import Sequence

from mitosis.scheduling.actions import Action, Wake, WakeReason
from mitosis.scheduling.offers import offer_free_hosts, offer_freed_hosts
from mitosis.scheduling.round import Round
from mitosis.scheduling.snapshot import Snapshot


def decide(snapshot: Snapshot, now: float) -> Sequence[Action]:
    """Return what is to be done now, in the order in which it was decided.

    Pure: the snapshot stays as it is, and the same snapshot gives the same answer. The caller carries the
    actions out and puts what follows from them; then another decision has nothing to do before its ``Wake``.

    Args:
        snapshot: all facts as of ``now``.
        now: seconds on the clock of the snapshot.
    """
    round_ = decided_round(snapshot, now)
    actions: list[Action] = list(round_.actions)
    if round_.is_over:
        actions.append(Wake(now, WakeReason.MORE))
    return actions


def decided_round(snapshot: Snapshot, now: float) -> Round:
    """Return the whole decision, with what it leaves: `explain` reads it."""
    round_ = Round(snapshot, now)
    offer_freed_hosts(round_)
    offer_free_hosts(round_)
    return round_
