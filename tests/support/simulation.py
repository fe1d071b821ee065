"""Small workloads for the simulator: task groups a, b, ... of one user group each, on hosts h1, h2, ..."""

from collections.abc import Sequence
from typing import Any

from mitosis.scheduling.actions import Action
from mitosis.scheduling.decide import decide
from mitosis.scheduling.policy import Policy
from mitosis.scheduling.simulation.accounts import Accounts
from mitosis.scheduling.simulation.entities import SimGroup
from mitosis.scheduling.simulation.simulator import Decision, Simulator
from mitosis.scheduling.simulation.workload import (
    GroupRecord,
    HostRecord,
    TasksRecord,
    Workload,
)

MINUTE = 60.0
HOUR = 3600.0
DAY = 24 * HOUR
TEAMS = ["team-1", "team-2"]


def without(kind: type[Action]) -> Decision:
    """The decision without its actions of one kind."""
    return lambda snapshot, now: [a for a in decide(snapshot, now) if not isinstance(a, kind)]


class Scene:
    """A workload in a few words, and what becomes of it."""

    def __init__(self, hosts: int, until: float) -> None:
        records = [HostRecord(name=f"h{n}", user_groups=TEAMS) for n in range(1, hosts + 1)]
        self.workload = Workload(until=until, hosts=records)
        self._groups: list[GroupRecord] = []
        self._tasks: list[TasksRecord] = []
        self.simulator: Simulator

    def group(self, name: str, *, at: float = 0.0, team: int = 1, **fields: Any) -> None:
        """A task group; it stays open unless ``closed_at`` says otherwise."""
        closed_at = fields.pop("closed_at", self.workload.until)
        fields.setdefault("user_group", f"team-{team}")
        record = GroupRecord(name=name, at=at, closed_at=closed_at, **fields)
        self._groups.append(record)

    def tasks(self, group: str, count: int, seconds: float, at: float = 0.0) -> None:
        """Tasks of equal length."""
        self._tasks.append(TasksRecord(group=group, at=at, seconds=[seconds] * count))

    def run(
        self, policy: Policy | None = None, decision: Decision = decide, *, checked: bool = True
    ) -> Accounts:
        """Simulate; no host may be kept from work after any round, if that is checked."""
        self.workload.groups, self.workload.tasks = self._groups, self._tasks
        self.simulator = Simulator(
            self.workload, policy or Policy(), checked=checked, decision=decision
        )
        accounts = self.simulator.run()
        kept = self.simulator.kept
        assert kept == [], str(kept[:3])
        return accounts

    def found(self, name: str) -> SimGroup:
        """The task group of this name after the run."""
        groups = self.simulator.accounts.groups.values()
        return next(group for group in groups if group.record.name == name)

    def wait(self, name: str) -> float:
        """How long it waited for its first host."""
        group = self.found(name)
        assert group.first_ready_at is not None
        assert group.first_offer_at is not None, f"{name} got no host"
        return group.first_offer_at - group.first_ready_at

    def share(self, *names: str) -> Sequence[float]:
        """The work done for each, as a share of the time of one host from its first task on."""
        until = self.workload.until
        found = []
        for name in names:
            group = self.found(name)
            begun = until - (group.first_ready_at or 0.0)
            found.append(group.task_seconds / group.workers / begun)
        return found
