"""The call that plans a task group; :class:`Client` has it."""

from datetime import timedelta

from mitosis.client.parameters import model
from mitosis.client.repeated_calls import RepeatedCalls
from mitosis.contracts.http import TaskGroupSpec
from mitosis.contracts.plans import PlanInfo, PlanTaskGroup


class PlanCalls(RepeatedCalls):
    """Plan without creating anything."""

    async def plan_group(
        self, spec: TaskGroupSpec, *, tasks: int = 1, task_duration: timedelta | None = None
    ) -> PlanInfo:
        """Return what each host would do for a task group, and when it would begin and end.

        Nothing is created.

        Raises:
            AlreadyExists, InvalidRequest: as ``create_group``.
        """
        asked = {"spec": model(TaskGroupSpec, spec, "spec"), "tasks": tasks}
        body = model(PlanTaskGroup, asked | {"task_duration": task_duration})
        return await self._api.model(PlanInfo, "POST", "/task-groups/plan", body)
