"""The port of the workflow of a run, in memory, on the server's own clock."""

from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID, uuid4

from mitosis.contracts.errors import DatabaseUnavailable, NotFound
from mitosis.contracts.lifecycle import RUN, RunEvent, RunState
from mitosis.contracts.run_control import Cancel, RunSituation, RunVerbRequest
from mitosis.contracts.schedule_control import Tick, TickAnswer
from tests.workflow.memory import Clock


@dataclass
class Run:
    """A run as PostgreSQL would keep it."""

    uuid: UUID = field(default_factory=uuid4)
    state: RunState = RunState.RUNNING
    deadline: datetime | None = None
    reason: str | None = None
    cancels: list[Cancel] = field(default_factory=list)


class MemoryRuns:
    """Implements the port for one run."""

    def __init__(self, clock: Clock, run: Run | None = None) -> None:
        self._clock = clock
        self.run = run or Run()
        self.looks = 0
        self.ticks: list[Tick] = []
        self.failures = 0
        self.away = False

    async def observe_run(self, run_id: UUID) -> RunSituation:
        if self.away:
            raise DatabaseUnavailable
        self.looks += 1
        run, now = self.run, await self._clock()
        if run_id != run.uuid:
            return RunSituation(run_id=run_id, exists=False)
        if run.deadline is not None and run.deadline <= now and run.state not in RUN.terminal:
            run.state, run.reason = RunState.FAILED, "its timeout has passed"
        left = None if run.deadline is None else (run.deadline - now).total_seconds()
        return RunSituation(
            run_id=run_id,
            state=run.state,
            job_name="pipeline",
            group_name="team",
            steps_total=2,
            reason=run.reason,
            next_in_seconds=left,
        )

    async def cancel_run(self, request: RunVerbRequest) -> RunSituation:
        if request.run_id != self.run.uuid:
            raise NotFound("there is no such run")
        if self.run.state is not RunState.CANCELLED:
            self.run.state = RUN.after(self.run.state, RunEvent.CANCEL)
        self.run.cancels.append(request.verb)
        return await self.observe_run(request.run_id)

    async def start_scheduled(self, tick: Tick) -> TickAnswer:
        self.ticks.append(tick)
        if self.failures:
            self.failures -= 1
            raise DatabaseUnavailable
        if tick.schedule_id != self.run.uuid:  # the test uses one id for both
            return TickAnswer(reason="the schedule was deleted")
        return TickAnswer(run_id=self.run.uuid)
