"""The rows of hosts and task groups, and the snapshot that follows from them, changed together. Pure."""

from collections.abc import Collection, Iterable, Mapping

from mitosis.scheduling.facts import Work
from mitosis.scheduling.policy import Policy
from mitosis.scheduling.snapshot import Snapshot
from mitosis.store.leases.fleet import GroupRow, HostRow
from mitosis.store.leases.member_sets import MemberSets


class FleetRows:
    """All rows of one time. What they lead to does not depend on the changes by which they came."""

    def __init__(self, policy: Policy, numbers: Iterable[int] = ()) -> None:
        """``numbers``: of hosts that may come later, so that a decision has the same order of hosts then."""
        self.snapshot = Snapshot(policy)
        for number in numbers:
            self.snapshot.ordinal(number)
        self.hosts: dict[int, HostRow] = {}
        self.groups: Mapping[int, GroupRow] = {}
        self.restless: set[int] = set()
        """Hosts whose lease changes by the clock, or by claims and ends of tasks."""
        self._policy = policy
        self._members = MemberSets((), self.snapshot.ordinal)

    def change(
        self,
        now: float,
        hosts: Collection[HostRow],
        groups: Iterable[GroupRow],
        *,
        gone: Iterable[int] = (),
        leases: Collection[HostRow] = (),
    ) -> None:
        """Put what has been read.

        Args:
            now: the time of these rows.
            hosts: those that have changed.
            groups: all that there are.
            gone: hosts that there are no more.
            leases: hosts of which nothing but the progress of their lease has changed.
        """
        gone = [number for number in gone if number in self.hosts]
        retagged = bool(gone) or any(self._is_retagged(row) for row in hosts)
        former, self.groups = self.groups, {row.number: row for row in groups}
        left = former.keys() | self._drop_leases(hosts, gone)
        for number in gone:
            self.snapshot.drop_host(number)
            del self.hosts[number]
            self.restless.discard(number)
        with self.snapshot.loading():
            for row in hosts:
                self._put_host(row, now)
            for row in leases:
                self._note(row)
            if retagged:
                self._members = MemberSets(self.hosts.values(), self.snapshot.ordinal)
            changed = {row.number for row in (*hosts, *leases)}
            for group in self.groups.values():
                changed.update(self._put_group(group, former.get(group.number), retagged=retagged))
            for number in changed:
                self._put_lease(self.hosts[number])
        for number in left - self.groups.keys():
            self._leave_group(number)

    def copied(
        self, now: float, hosts: Collection[HostRow], groups: Iterable[GroupRow]
    ) -> Snapshot:
        """Return a copy of the snapshot, with those of these hosts and task groups that it lacks.

        What is added can be explained: a host that is not in contact, or a task group without tasks.
        """
        snapshot, policy = self.snapshot.copy(), self._policy
        hosts = [row for row in hosts if row.number not in self.hosts]
        members = MemberSets(hosts, snapshot.ordinal)
        for row in hosts:
            snapshot.put_host(row.fact(now, policy.suspect_after_seconds))
        added = [row for row in groups if row.number not in self.groups]
        for group in (*(self.groups.values() if hosts else ()), *added):
            chosen = self._members.of(group) | members.of(group)
            removed = self._members.removed(group) | members.removed(group)
            fact, known = (
                group.fact(chosen, removed, policy.leases),
                snapshot.groups.get(group.number),
            )
            if known is None or known.fact != fact:
                snapshot.put_group(fact, group.work)
        return snapshot

    def hosts_of(self, group: int) -> Iterable[int]:
        """Return the hosts with a lease of a task group."""
        state = self.snapshot.groups.get(group)
        return [self.snapshot.leases[of].host for of in state.leases] if state is not None else []

    def _is_retagged(self, row: HostRow) -> bool:
        former = self.hosts.get(row.number)
        return former is None or (former.tags, former.former_tags) != (row.tags, row.former_tags)

    def _drop_leases(self, hosts: Iterable[HostRow], gone: Iterable[int]) -> set[int]:
        """Drop leases that are no more; return their task groups."""
        groups = set[int]()
        kept = {row.number: row.lease_number for row in hosts} | dict.fromkeys(gone)
        for number, lease in kept.items():
            state = self.snapshot.hosts.get(number)
            for former in [] if state is None else list(state.leases):
                if former != lease:
                    groups.add(self.snapshot.leases[former].group)
                    self.snapshot.drop_lease(former)
        return groups

    def _put_host(self, row: HostRow, now: float) -> None:
        fact = row.fact(now, self._policy.suspect_after_seconds)
        known = self.snapshot.hosts.get(row.number)
        if known is None or known.fact != fact:
            self.snapshot.put_host(fact)
        self._note(row)

    def _note(self, row: HostRow) -> None:
        self.hosts[row.number] = row
        if _is_restless(row):
            self.restless.add(row.number)
        else:
            self.restless.discard(row.number)

    def _put_group(
        self, row: GroupRow, former: GroupRow | None, *, retagged: bool
    ) -> Iterable[int]:
        """Put a task group; return the hosts whose leases depend on what has changed."""
        known = self.snapshot.groups.get(row.number)
        if known is not None and row == former and not retagged:
            return ()
        had_ready = known is not None and known.work.ready > 0
        fact = row.fact(self._members.of(row), self._members.removed(row), self._policy.leases)
        if known is None or known.fact != fact:
            self.snapshot.put_group(fact, row.work)
        elif known.work != row.work:
            self.snapshot.put_work(row.number, row.work)
        return self.hosts_of(row.number) if had_ready != (row.work.ready > 0) else ()

    def _put_lease(self, row: HostRow) -> None:
        holder = row.holder()
        if holder is None:
            return
        if holder.number not in self.snapshot.groups:
            self.snapshot.put_group(holder)
        lease = row.lease(has_ready=self.snapshot.groups[holder.number].work.ready > 0)
        if lease is not None and self.snapshot.leases.get(lease.number) != lease:
            self.snapshot.put_lease(lease)

    def _leave_group(self, number: int) -> None:
        """Forget a task group, or all of it but its name and priority while it has leases."""
        if number not in self.snapshot.groups:
            return
        hosts = list(self.hosts_of(number))
        if not hosts:
            self.snapshot.drop_group(number)
            return
        holder = self.hosts[hosts[0]].holder()
        assert holder is not None  # noqa: S101 - the host has its lease
        self.snapshot.put_group(holder, Work())
        for host in hosts:
            self._put_lease(self.hosts[host])


def _is_restless(row: HostRow) -> bool:
    """Return whether the progress of a lease changes although nothing is written about it.

    That of one without tasks makes no difference until its task group has some: see ``HostRow.lease``.
    """
    return row.progress is not None and row.empty_since is None
