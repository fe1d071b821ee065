"""Puts the state of a simulation into the snapshot of the decision: what has changed since the last round."""

from mitosis.contracts.lifecycle import LeaseState
from mitosis.scheduling.facts import Group, Host, Lease, Progress, Work
from mitosis.scheduling.policy import Policy
from mitosis.scheduling.simulation.entities import MEASURED_TASKS, Run, SimGroup, SimHost
from mitosis.scheduling.snapshot import Snapshot

MEASURED_OFTEN = 1.25
"""A mean duration is put again when so many times as many tasks have ended."""


class FactWriter:
    """Notes what has changed, and puts it at the next round: a host or a lease may change often until then.

    The work of task groups is put only where it may matter.
    """

    def __init__(self, policy: Policy) -> None:
        self.snapshot = Snapshot(policy)
        self.touched: set[SimGroup] = set()
        """Task groups whose work is to be put."""
        self.changed = False
        """Whether a decision may have more to do than when this was set to False. Other changes, such as
        fewer ready tasks, only take needs away, or have a time at which a decision was asked for."""
        self._hosts: dict[SimHost, float] = {}
        """Hosts to put, with the times of their last changes."""
        self._leases: dict[Run, None] = {}
        self._gone: list[Run] = []

    def host(self, host: SimHost, now: float) -> None:
        """Note that a host has changed."""
        self.changed |= host.is_free or (host.draining and host.run is not None)
        self._hosts[host] = now

    def put_all(self) -> None:
        """Put all hosts and leases that have changed."""
        snapshot = self.snapshot
        for run in self._gone:
            if run.number in snapshot.leases:
                snapshot.drop_lease(run.number)
        for host, at in self._hosts.items():
            self._put_host(host, at)
        for run in self._leases:
            self._put_lease(run)
        self._gone.clear()
        self._hosts.clear()
        self._leases.clear()

    def _put_host(self, host: SimHost, now: float) -> None:
        policy = self.snapshot.policy
        if host.moved_at:
            host.moved_at = [at for at in host.moved_at if at > now - 3600.0]
        if host.freed_for:
            oldest = now - policy.freed_counts_seconds
            host.freed_for = [freed for freed in host.freed_for if freed.at > oldest]
        self.snapshot.put_host(
            Host(
                number=host.number,
                name=host.record.name,
                serves=host.serves,
                in_contact=host.in_contact,
                draining=host.draining,
                warm=frozenset(host.warm),
                unclean=frozenset(host.unclean),
                failures=tuple(host.failures.values()),
                moved_at=tuple(host.moved_at),
                freed_for=tuple(host.freed_for),
            )
        )

    def group(self, group: SimGroup) -> None:
        """Put the definition of a task group."""
        self.changed = True
        record = group.record
        self.snapshot.put_group(
            Group(
                number=group.number,
                name=record.name,
                user_group=group.user_group,
                user_group_name=record.user_group,
                priority=record.priority,
                created_at=record.at,
                goes_on=not group.is_settled,
                members=group.members,
                workers=record.workers,
                max_managers=record.max_managers,
            )
        )

    def lease(self, run: Run) -> None:
        """Note that a lease has changed."""
        progress = run.progress
        run.noted = (progress, run.idle_since)
        if run.group.ready and progress is not Progress.STARTING and progress is not Progress.ROOM:
            self.changed = True
        self._leases[run] = None
        self.touched.add(run.group)

    def lease_is_gone(self, run: Run) -> None:
        """Note that a lease has ended."""
        self._leases.pop(run, None)
        self._gone.append(run)
        self.touched.add(run.group)

    def _put_lease(self, run: Run) -> None:
        self.snapshot.put_lease(
            Lease(
                number=run.number,
                group=run.group.number,
                host=run.host.number,
                state=run.state,
                progress=run.progress,
                taken_at=run.taken_at,
                affinity_until=run.affinity_until,
                renewed=run.renewed,
                idle_since=run.idle_since,
                for_group=run.for_group,
                ending_since=run.ending_since,
            )
        )

    def progress(self, run: Run) -> None:
        """Note that a lease has changed if its progress has."""
        if run.state is not LeaseState.ENDING and run.noted != (run.progress, run.idle_since):
            self.lease(run)

    def put(self, now: float) -> None:
        """Put all that has changed, and the work of the task groups that were touched."""
        groups = self.snapshot.groups
        with self.snapshot.changing():
            self.put_all()
            touched = [group for group in self.touched if group.number in groups]
            for group in touched:
                self._note_hostless(group, now)
                self.snapshot.put_work(group.number, _work(group))
        for group in touched:
            group.measured_at = max(MEASURED_TASKS, group.ended * MEASURED_OFTEN)
            group.is_watched = groups[group.number].missing > 0
        self.touched.clear()

    def _note_hostless(self, group: SimGroup, now: float) -> None:
        """Note since when it has had ready tasks and no lease, and no host on the way either."""
        held = self.snapshot.groups[group.number].held
        if not group.ready or held.has_host:
            group.hostless_since = None
        elif group.hostless_since is None:
            group.hostless_since = now
        if not group.ready or held.live:
            group.leaseless_since = None
        elif group.leaseless_since is None:
            group.leaseless_since = now


def _work(group: SimGroup) -> Work:
    return Work(
        ready=group.ready,
        unfinished=group.unfinished,
        hostless_since=group.hostless_since,
        tasks_measured=group.ended,
        task_seconds=group.mean_seconds,
        setup_seconds=group.setup_seconds / group.setups if group.setups else 0.0,
        teardown_seconds=group.teardown_seconds / group.teardowns if group.teardowns else 0.0,
    )
