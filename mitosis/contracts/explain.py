"""The answers of `explain`: why a task group, a task or a host waits, runs or has ended."""

from collections.abc import Sequence
from uuid import UUID

from mitosis.contracts.http import AnswerBody
from mitosis.contracts.lifecycle import ManagerState


class Obstacle(AnswerBody):
    """A condition that keeps a host from a task group."""

    code: str
    line: str


def _chain(line: str, obstacles: Sequence[Obstacle]) -> str:
    """Return the line, which is the first obstacle if there is one, and after it the others."""
    return "; also ".join((line, *(obstacle.line for obstacle in obstacles[1:])))


class HostReason(AnswerBody):
    """What one host does for a task group, or why it does not serve it."""

    manager_id: UUID
    manager_name: str
    """Not unique: several hosts may have the same name."""
    state: ManagerState | None = None
    """What the host is doing. None: the server is of a version before this field."""
    code: str
    line: str
    obstacles: tuple[Obstacle, ...] = ()
    """Every condition on the host that does not hold, in the order of repair, with the values compared; if
    all hold, why the task group does not use the host."""

    @property
    def chain(self) -> str:
        """Return the line, and after it every other condition that does not hold."""
        return _chain(self.line, self.obstacles)


class Explanation(AnswerBody):
    """One line for users, one code for programs, and the reason of each host that may serve the group."""

    task_group_id: UUID
    task_group_name: str
    task_id: int | None = None
    state: str
    """The state of the task, or of the group if it explains a group."""
    waits: bool
    """True: the group or task waits. False: it runs, or it has ended."""
    code: str
    """Stable: finished, working, no_manager, none_named, tags, misfit, setup_failed, no_contact,
    draining, busy, unclean, no_work, enough, assigning, offered, setup, suspect, infrastructure, leaving,
    no_workers_available, unclaimed, delayed, empty, open, completing, discarding, ending_tasks, cleanup,
    settling; of a task also claimed, queued, alone. Of a group also max_managers, member. Of a host
    also no_role, removed, not_named, tags, free; max_managers, enough, no_work, next_round if left over.
    """
    line: str
    change: str | None = None
    """The smallest change after which a host would serve a task group that waits for one, if there is one."""
    hosts: tuple[HostReason, ...] = ()
    """At most 200, those with a lease of the group first; none for a group that has ended."""


class GroupReason(AnswerBody):
    """A task group with work that a host does not serve, and why."""

    task_group_id: UUID
    task_group_name: str
    code: str
    line: str
    obstacles: tuple[Obstacle, ...] = ()
    """Every condition that does not hold, in the order of repair, with the values compared."""

    @property
    def chain(self) -> str:
        """Return the line, and after it every other condition that does not hold."""
        return _chain(self.line, self.obstacles)


class HostExplanation(AnswerBody):
    """One line for users, one code for programs, and the reasons why a host does not serve task groups."""

    manager_id: UUID
    manager_name: str
    state: ManagerState | None = None
    """What the host is doing. None: the explanation is of an earlier time."""
    waits: bool
    """True: it serves no task group, and is not about to."""
    code: str
    """Stable: working, setup, offered, leaving, idle, free, draining, cleanup, no_contact; of an earlier
    time: decided.
    """
    line: str
    change: str | None = None
    """The smallest change after which it would serve a task group, if it waits and there is one."""
    groups: tuple[GroupReason, ...] = ()
    """Task groups with work, at most 20, those that wait for a host first, then by rank; only those that the
    caller may read.
    """
    more_groups: int = 0
    """Task groups with work that are left out of ``groups``."""
