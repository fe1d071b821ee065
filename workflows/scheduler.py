"""The workflow that assigns hosts to groups: any number of pokes lead to one round in PostgreSQL."""

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from activities.managers import ManagerActivities
    from workflows.options import with_database
    from workflows.poke_loop import PokeLoop


@workflow.defn(name="SchedulerWorkflow")
class SchedulerWorkflow:
    """A singleton. Pokes that arrive during a round lead to exactly one more round."""

    @workflow.init
    def __init__(self) -> None:
        self._pokes = PokeLoop()

    @workflow.run
    async def run(self) -> None:
        while True:
            self._pokes.look()
            answer = await workflow.execute_activity_method(
                ManagerActivities.assign_round, **with_database("match hosts and groups")
            )
            workflow.set_current_details(
                f"Last round: {answer.offered} offers, {answer.resignalled} offers sent again."
            )
            if self._pokes.should_continue_as_new():
                await workflow.wait_condition(workflow.all_handlers_finished)
                workflow.continue_as_new()
            await self._pokes.wait(answer.next_round_in_seconds, "next round")

    @workflow.signal(description="Look again: something has changed in PostgreSQL.")
    def poke(self) -> None:
        self._pokes.poke()
