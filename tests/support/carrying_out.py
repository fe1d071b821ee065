"""What follows from the actions of a decision, put into its snapshot at once."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import count

from mitosis.contracts.lifecycle import LeaseState
from mitosis.scheduling.actions import Action, EndLease, Offer, Renew
from mitosis.scheduling.facts import Freed, Lease, Progress
from mitosis.scheduling.snapshot import Snapshot

NUMBERS = count(10**6)


def carry_out(snapshot: Snapshot, actions: Sequence[Action], now: float) -> None:
    """Put what follows from the actions at once: offers are taken up, ended leases end later."""
    for action in actions:
        if isinstance(action, Offer):
            host = snapshot.hosts[action.host].fact
            freed = [one for one in host.freed_for if one.group != action.group]
            snapshot.put_host(replace(host, freed_for=tuple(freed)))
            snapshot.put_lease(
                Lease(
                    number=next(NUMBERS),
                    group=action.group,
                    host=action.host,
                    state=LeaseState.OFFERED,
                    progress=Progress.STARTING,
                    taken_at=now,
                )
            )
        elif isinstance(action, EndLease):
            lease = snapshot.leases[action.lease]
            ended = replace(
                lease, state=LeaseState.ENDING, for_group=action.for_group, ending_since=now
            )
            snapshot.put_lease(ended)
            if action.reason.is_contested:
                host = snapshot.hosts[lease.host].fact
                snapshot.put_host(replace(host, moved_at=(*host.moved_at, now)))
        elif isinstance(action, Renew):
            lease = snapshot.leases[action.lease]
            snapshot.put_lease(replace(lease, affinity_until=action.until, renewed=True))


def end_what_ends(snapshot: Snapshot, now: float) -> None:
    """Let the leases that are ENDING end: their hosts are free, for the task group that gets them."""
    for lease in [one for one in snapshot.leases.values() if not one.is_live]:
        snapshot.drop_lease(lease.number)
        if lease.for_group is not None:
            host = snapshot.hosts[lease.host].fact
            snapshot.put_host(
                replace(host, freed_for=(*host.freed_for, Freed(lease.for_group, now)))
            )
