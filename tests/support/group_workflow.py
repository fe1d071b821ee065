"""What the workflow of a task group does, by hand on the real store."""

from collections.abc import Awaitable, Callable
from uuid import UUID

from mitosis.contracts.control import GroupView
from mitosis.store.control.control_store import ControlStore
from workflows.decisions import (
    CloseIfInactive,
    Discard,
    EndAfterFailedSetups,
    Finalize,
    Settle,
    group_step,
)


async def _nothing(_: UUID) -> None:
    return


async def follow_task_group(
    control: ControlStore, group: UUID, settled: Callable[[UUID], Awaitable[None]] = _nothing
) -> GroupView:
    """Do each step that is due until the workflow would wait; return what it saw then.

    ``settled``: called after the group was settled.
    """
    while True:
        view = await control.observe_task_group(group)
        match group_step(view):
            case Discard():
                await control.discard(group)
            case Finalize():
                await control.finalize(group)
            case Settle():
                await control.settle(group)
                await settled(group)
            case EndAfterFailedSetups():
                await control.end_after_failed_setups(group)
            case CloseIfInactive():
                await control.close_if_inactive(group)
            case _:
                return view
