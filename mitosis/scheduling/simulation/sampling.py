"""Looks at the fleet once a minute: who waits, which hosts could serve them, how equal the shares are."""

from collections import Counter

from mitosis.scheduling.host_sets import NONE
from mitosis.scheduling.simulation.accounts import Accounts
from mitosis.scheduling.simulation.conservation import Conservation
from mitosis.scheduling.simulation.entities import SimGroup


class Sampling:
    """Takes samples."""

    def __init__(self, accounts: Accounts, conservation: Conservation) -> None:
        self._accounts = accounts
        self._conservation = conservation

    def waiting(self) -> set[SimGroup]:
        """Return the task groups with ready tasks."""
        accounts = self._accounts
        settled = [number for number, group in accounts.open.items() if group.is_settled]
        for number in settled:
            del accounts.open[number]
        return {group for group in accounts.open.values() if group.ready}

    def sample(self, now: float) -> None:
        """Take one sample."""
        accounts, waiting = self._accounts, self.waiting()
        accounts.sampled_hosts += len(accounts.hosts)
        if waiting:
            accounts.idle_while_waiting += self._idle_while_waiting(waiting)
            kept = self._conservation.kept(now, waiting)
            hosts = NONE
            for one in kept:
                hosts |= one.hosts
            needed = sum(min(one.missing, one.hosts.bit_count()) for one in kept)
            accounts.past_threshold += min(hosts.bit_count(), needed)
        self._sample_shares(waiting)

    def finish(self, until: float) -> None:
        """Count the waits that are not over at the end."""
        accounts = self._accounts
        for group in self.waiting():
            accounts.end_leaseless(group, until)
            if group.first_offer_at is None and group.first_ready_at is not None:
                accounts.waits.append((group.record.priority, until - group.first_ready_at))

    def _idle_while_waiting(self, waiting: set[SimGroup]) -> int:
        """Return how many hosts run nothing that ready tasks could use, at most as many as they need."""
        idle = NONE
        for host in self._accounts.hosts.values():
            run = host.run
            if host.is_free if run is None else run.idle_since is not None and host.in_contact:
                idle |= host.bit
        if not idle:
            return 0
        found, needed = NONE, 0
        for group in waiting:
            usable = idle & group.usable
            most = group.record.max_managers
            room = usable.bit_count() if most is None else max(0, most - len(group.runs))
            needed += min(-(-group.ready // group.workers), usable.bit_count(), room)
            found |= usable
        return min(found.bit_count(), needed)

    def _sample_shares(self, waiting: set[SimGroup]) -> None:
        """Sample Jain's index over the leases of user groups with ready tasks of priority 0."""
        leases: Counter[int] = Counter()
        for group in waiting:
            if group.record.priority == 0:
                leases[group.user_group] += 0
        if len(leases) < 2:
            return
        for group in self._accounts.open.values():
            if group.user_group in leases and group.record.priority == 0:
                leases[group.user_group] += len(group.runs)
        squares = sum(count * count for count in leases.values())
        if squares:
            total = sum(leases.values())
            self._accounts.jain.append(total * total / (len(leases) * squares))
