"""The workflow that deletes what is kept no longer: the durable schedule of the passes over PostgreSQL."""

from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta

from temporalio import workflow
from temporalio.common import RawValue

with workflow.unsafe.imports_passed_through():
    from activities.retention import RetentionActivities
    from workflows.ensuring import ensure_all

EVENTS_BEFORE_CONTINUE_AS_NEW = 500
LONGEST_SLEEP_SECONDS = 3600.0
"""A shorter time in the settings of a control worker that starts later holds after an hour at most."""


@workflow.defn(name="RetentionWorkflow")
class RetentionWorkflow:
    """A singleton. Its timers only say when to call again: PostgreSQL knows what is due."""

    @workflow.init
    def __init__(self) -> None:
        self._poked = False

    @workflow.run
    async def run(self) -> None:
        while True:
            self._poked = False
            seconds = await ensure_all(
                RetentionActivities.delete_expired, "delete what is kept no longer"
            )
            if workflow.info().get_current_history_length() >= EVENTS_BEFORE_CONTINUE_AS_NEW:
                workflow.continue_as_new()
            pause = min(seconds, LONGEST_SLEEP_SECONDS)
            workflow.set_current_details(f"Deletes again in {pause:.0f} s what is kept no longer.")
            with suppress(TimeoutError):
                await workflow.wait_condition(
                    lambda: self._poked,
                    timeout=timedelta(seconds=pause),
                    timeout_summary="next deletions",
                )

    @workflow.signal(description="Call again: delete what is due now.")
    def poke(self) -> None:
        self._poked = True

    @workflow.signal(dynamic=True)
    def unknown_signal(self, name: str, args: Sequence[RawValue]) -> None:
        """Ignore it; without this handler, Temporal keeps it in memory for ever."""

    def message_received(self) -> None:
        """Count no messages (``workflows.interception``): their events are counted."""

    def message_refused(self, message: str, reason: str) -> None:
        """Log a message that had no effect."""
        workflow.logger.warning("signal.dropped", extra={"what": message, "reason": reason})
