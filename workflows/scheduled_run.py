"""The workflow that a schedule starts at each of its times: it starts the run.

It does not wait for its end: overlap policies are decided in PostgreSQL, where the runs are.
"""

from collections.abc import Sequence

from temporalio import workflow
from temporalio.common import RawValue, SearchAttributeKey

with workflow.unsafe.imports_passed_through():
    from activities.runs import RunActivities
    from mitosis.contracts.schedule_control import ScheduledRunInput, ScheduledRunSummary, Tick
    from mitosis.contracts.temporal_names import NOMINAL_TIME
    from workflows.options import with_database

NOMINAL = SearchAttributeKey.for_datetime(NOMINAL_TIME)


@workflow.defn(name="ScheduledRunWorkflow")
class ScheduledRunWorkflow:
    """One time of a schedule. Result: a :class:`ScheduledRunSummary`."""

    @workflow.run
    async def run(self, given: ScheduledRunInput) -> ScheduledRunSummary:
        info = workflow.info()
        nominal = info.typed_search_attributes.get(NOMINAL)
        tick = Tick(
            schedule_id=given.schedule_id,
            nominal_time=nominal or info.start_time.replace(microsecond=0),
            started_at=info.start_time,
            times=given.times,
        )
        answer = await workflow.execute_activity_method(
            RunActivities.start_scheduled, tick, **with_database("start the run")
        )
        return ScheduledRunSummary(run_id=answer.run_id, reason=answer.reason)

    @workflow.signal(dynamic=True)
    def unknown_signal(self, name: str, args: Sequence[RawValue]) -> None:
        """Ignore a signal; one without a handler would be kept for ever."""
        del args
        self.message_refused(f"signal {name}", "it takes no signals")

    def message_received(self) -> None:
        """Count a message: there is nothing to count."""

    def message_refused(self, message: str, reason: str) -> None:
        """Log that a message had no effect."""
        workflow.logger.warning("scheduled_run.refused", extra={"what": message, "reason": reason})
