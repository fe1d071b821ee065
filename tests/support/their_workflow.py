"""A workflow of another team that runs a task group as one of its steps."""

from uuid import UUID

from temporalio import workflow

from mitosis.contracts.control import GroupSummary
from workflows.child import run_task_group


@workflow.defn
class TheirCampaign:
    @workflow.run
    async def run(self, task_group_id: UUID) -> GroupSummary:
        return await run_task_group(task_group_id)
