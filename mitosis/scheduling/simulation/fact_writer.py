"""Puts the state of a simulation into the snapshot of the decision, one fact at a time."""

from mitosis.contracts.lifecycle import LeaseState
from mitosis.scheduling.facts import Group, Host, Lease, Progress, Work
from mitosis.scheduling.policy import Policy
from mitosis.scheduling.simulation.entities import Run, SimGroup, SimHost
from mitosis.scheduling.snapshot import Snapshot

MEASURED_OFTEN = 1.25
"""A mean duration is put again when so many times as many tasks have ended."""


class FactWriter:
    """Writes facts. The work of task groups is written at the next round, and only where it may matter."""

    def __init__(self, policy: Policy) -> None:
        self.snapshot = Snapshot(policy)
        self.touched: set[SimGroup] = set()
        """Task groups whose work is to be put."""
        self.changed = False
        """Whether a decision may have more to do than when this was set to False. Other changes, such as
        fewer ready tasks, only take needs away, or have a time at which a decision was asked for."""

    def host(self, host: SimHost, now: float) -> None:
        """Put a host."""
        self.changed |= host.is_free or (host.draining and host.run is not None)
        policy = self.snapshot.policy
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
        """Put a lease."""
        run.put = (run.progress, run.idle_since)
        self.changed |= bool(run.group.ready) and run.put[0] not in (
            Progress.STARTING,
            Progress.ROOM,
        )
        self.snapshot.put_lease(
            Lease(
                number=run.number,
                group=run.group.number,
                host=run.host.number,
                state=run.state,
                progress=run.put[0],
                taken_at=run.taken_at,
                affinity_until=run.affinity_until,
                renewed=run.renewed,
                idle_since=run.idle_since,
                for_group=run.for_group,
                ending_since=run.ending_since,
            )
        )
        self.touched.add(run.group)

    def progress(self, run: Run) -> bool:
        """Put a lease if its progress has changed; return whether it has."""
        if run.state is LeaseState.ENDING or run.put == (run.progress, run.idle_since):
            return False
        self.lease(run)
        return True

    def work(self, now: float) -> None:
        """Put the work of the task groups that were touched."""
        groups = self.snapshot.groups
        for group in self.touched:
            if group.number not in groups:
                continue
            self._note_hostless(group, now)
            self.snapshot.put_work(group.number, _work(group))
            group.put_ended = group.ended
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
