"""The decision: from a snapshot to offers, ends of leases, renewals, and the time of the next decision."""

from collections.abc import Sequence

from mitosis.scheduling.actions import Action
from mitosis.scheduling.contest import take_hosts
from mitosis.scheduling.duties import end_leases_that_may_not_stay, renew_leases
from mitosis.scheduling.offers import offer_free_hosts, offer_freed_hosts
from mitosis.scheduling.round import Round
from mitosis.scheduling.snapshot import Snapshot
from mitosis.scheduling.wake import next_wake

STEPS = (
    end_leases_that_may_not_stay,
    offer_freed_hosts,
    offer_free_hosts,
    take_hosts,
    renew_leases,
)
"""The parts of a decision, in their order; each sees what those before it have given away."""


def decide(snapshot: Snapshot, now: float) -> Sequence[Action]:
    """Return what is to be done now, in the order in which it was decided.

    Pure: the snapshot stays as it is, and the same snapshot gives the same answer. The caller carries the
    actions out and puts what follows from them: a lease for each offer, ENDING leases (``for_group`` is the
    winner; ``Host.moved_at`` gets the time if the end was contested), the new ``affinity_until`` of a renewed
    lease. A lease that is taken has ``affinity_until`` = now + ``costs.affinity_seconds``. A task group that
    loses a lease is served by the next decision, so the caller decides again until there is nothing to do.
    ``Wake`` names only times that some waiting task group has a use for. The caller also decides at each
    ``affinity_until``, so that leases are renewed, or ended without work, when it says so.

    Args:
        snapshot: all facts as of ``now``.
        now: seconds on the clock of the snapshot.
    """
    round_ = decided_round(snapshot, now)
    wake = next_wake(round_)
    return round_.actions if wake is None else [*round_.actions, wake]


def decided_round(snapshot: Snapshot, now: float) -> Round:
    """Return the whole decision, with what it leaves: `explain` reads it."""
    round_ = Round(snapshot, now)
    for step in STEPS:
        if round_.is_over:
            break
        step(round_)
    return round_
