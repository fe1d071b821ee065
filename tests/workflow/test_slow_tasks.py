"""A workflow task that a loaded machine makes slow succeeds; the SDK would call it a deadlock after 2 s."""

import time

import pytest
from temporalio.testing import WorkflowEnvironment

from mitosis.contracts.control import GroupView
from mitosis.contracts.lifecycle import TaskGroupState
from tests.support.workflow_tasks import failed_workflow_tasks
from tests.workflow.memory import Group, MemoryGroups
from tests.workflow.running import running
from tests.workflow.scenarios import start_group
from workflows.options import WORKFLOW_TASK_WITHIN
from workflows.worker import DEADLOCK_AFTER_SECONDS

SLOW_SECONDS = 2.2


async def test_a_slow_workflow_task_is_no_deadlock(
    skipping: WorkflowEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert WORKFLOW_TASK_WITHIN.total_seconds() < DEADLOCK_AFTER_SECONDS
    settleable: property = vars(GroupView)["settleable"]
    slow = [SLOW_SECONDS]

    def slowly(view: GroupView) -> bool:
        if slow:
            time.sleep(slow.pop())
        return bool(settleable.__get__(view))

    monkeypatch.setattr(GroupView, "settleable", property(slowly))
    group = Group(state=TaskGroupState.COMPLETE)
    async with running(skipping, groups=MemoryGroups(skipping.get_current_time, group)):
        handle = await start_group(skipping, group)
        await handle.result()
    assert not slow
    assert failed_workflow_tasks((await handle.fetch_history()).events) == []
