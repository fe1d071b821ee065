"""What nobody may do to a workflow that runs somewhere: another command in an old history."""

import asyncio

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from mitosis.contracts.control import GroupSummary, TaskGroupInput
    from workflows.task_group import TaskGroupWorkflow


@workflow.defn(name="TaskGroupWorkflow")
class ChangedTaskGroupWorkflow(TaskGroupWorkflow):
    """As ours, after a nap."""

    @workflow.init
    def __init__(self, given: TaskGroupInput) -> None:
        super().__init__(given)

    @workflow.run
    async def run(self, given: TaskGroupInput) -> GroupSummary:
        await asyncio.sleep(1)
        return await super().run(given)
