"""The events that followers receive: changes of a task group, and output of running tasks.

Server-Sent Events, WebSockets and the SDK's iterators use the same documents.
"""

from datetime import datetime
from typing import Literal

from pydantic import Base64Bytes

from mitosis.contracts.http import AnswerBody, HookRunInfo, LeaseInfo, TaskGroupInfo, TaskInfo
from mitosis.contracts.lifecycle import TaskGroupResult, TaskGroupState

EventKind = Literal["group", "state", "lease", "hook", "result", "end"]


class StateChange(AnswerBody):
    """A change of a group's state. Two changes in quick succession may appear as one."""

    before: TaskGroupState | None = None
    """None: the first one sent."""
    state: TaskGroupState
    settled: bool
    result: TaskGroupResult | None = None
    reason: str | None = None


class LeaseChange(AnswerBody):
    """A host took a lease of the group, is leaving, or has left. ``lease`` is the last observed one."""

    manager_name: str
    before: str | None = None
    """None: it is new."""
    state: str
    """``ended`` when it is no longer listed."""
    lease: LeaseInfo


class GroupEvent(AnswerBody):
    """One event of a group; exactly the member named by ``kind`` is present (``group`` for ``end``).

    Every result is sent once, in the order of ``seq``, without gaps. A snapshot replaces the one before it:
    a slow reader gets fewer snapshots, never older ones.
    """

    kind: EventKind
    cursor: int
    """``seq`` of the last result that was sent; following resumes after it."""
    at: datetime
    """Clock of the API."""
    group: TaskGroupInfo | None = None
    state: StateChange | None = None
    lease: LeaseChange | None = None
    hook: HookRunInfo | None = None
    result: TaskInfo | None = None

    def text(self) -> str:
        """Return the event as JSON, without the members that its kind does not have."""
        absent = {name for name in _MEMBERS if getattr(self, name) is None}
        return self.model_dump_json(exclude=absent)


_MEMBERS = ("group", "state", "lease", "hook", "result")


OutputKind = Literal["attempt", "output", "result", "end"]


class OutputEvent(AnswerBody):
    """One event of the output of one task, or of all tasks of a group.

    ``attempt`` has the state of an attempt, ``output`` some of its bytes, ``result`` the outcome of the
    task; ``end`` is the last event. After a reconnect the kept output is sent again: skip the bytes
    received before, by ``offset``.
    """

    kind: OutputKind
    cursor: int = 0
    """Of a group: ``seq`` of the last result that was sent; following resumes after it."""
    task_id: int | None = None
    attempt: int | None = None
    state: str | None = None
    """State of an ``attempt``: ready, delayed, running, or failed if another attempt follows."""
    manager_name: str | None = None
    reason: str | None = None
    """How a failed ``attempt`` ended, or why one waits."""
    stream: Literal["stdout", "stderr"] | None = None
    offset: int | None = None
    """Offset of the first byte in the whole stream of the attempt."""
    skipped: int | None = None
    """Bytes before ``offset`` that are not sent: written before the follower came, or too fast for it."""
    data: Base64Bytes | None = None
    result: TaskInfo | None = None

    def text(self) -> str:
        """Return the event as JSON, without the members that its kind does not have."""
        return self.model_dump_json(exclude_defaults=True)
