"""Short tasks, whose starts no message says: worker, zygote and agent die at random, tasks are cancelled.

Each task has one result, runs once after the death of nothing, never again after its result was recorded,
and a death is charged to the task that ran. ``MITOSIS_CAMPAIGN_EXAMPLES`` sets the number of lives.
"""

import asyncio
import random
import time
from collections import Counter, defaultdict
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import psutil
import pytest
from starlette.requests import Request

from mitosis.contracts.agent_http import AttemptList
from mitosis.contracts.allocation import WorkerAllocationPlan
from mitosis.contracts.attempt import AttemptKey
from mitosis.contracts.lifecycle import EnvironmentState
from mitosis.contracts.task import TaskSubmission
from mitosis.contracts.wire import (
    ClaimAnswer,
    ClaimTasks,
    Outcome,
    RenewalAnswer,
    ReportStatus,
    StopOrder,
    TaskReport,
)
from tests.integration.manager_agent.test_agent import Running, agent_process
from tests.support.agents import until
from tests.support.examples import examples
from tests.support.fake_api import FakeApi

TASKS = 600
FAULTS = 25
DEATHS = {"worker_lost", "workers_lost"}


class Ran(NamedTuple):
    """One line of what the handlers have written."""

    at: float
    key: AttemptKey
    pid: int
    what: str


class Api(FakeApi):
    """Cancels tasks, and keeps when a result was recorded and what each hello names as begun."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.stopped: set[int] = set()
        self.recorded: dict[int, float] = {}
        self.named: list[set[AttemptKey]] = []

    async def hello(self, request: Request) -> Any:
        body = await request.json()
        self.named.append(set(AttemptList.model_validate(body.get("begun", {})).keys()))
        return await super().hello(request)

    def cancel(self, task_id: int) -> None:
        self.stopped.add(task_id)
        self._end_cancelled()

    def _end_cancelled(self) -> None:
        for task_id in [*self.stopped]:
            task = self.open.get(task_id)
            if task is not None and task.epoch is None:
                del self.open[task_id]
                report = TaskReport(task_id=task_id, attempt=0, outcome=Outcome.CANCELLED)
                self.results[task_id] = report

    def _claim(self, body: ClaimTasks) -> ClaimAnswer:
        self._end_cancelled()
        return super()._claim(body)

    def _report(self, report: TaskReport) -> ReportStatus:
        status = super()._report(report)
        if status is ReportStatus.COMMITTED and report.task_id in self.results:
            self.recorded[report.task_id] = time.time()
        return status

    async def renew(self, request: Request) -> Any:
        answer = await super().renew(request)
        self._end_cancelled()
        if not isinstance(answer, RenewalAnswer):
            return answer
        stops = [
            StopOrder(task_id=one, attempt=self.open[one].attempt, grace_seconds=1.0, reason="")
            for one in self.stopped & self.open.keys()
        ]
        return msgspec.structs.replace(answer, stops=stops)


class Life:
    """One run: the tasks, the faults, and what came of them."""

    def __init__(self, folder: Path, seed: int, harms: dict[int, str] | None = None) -> None:
        """Draw the tasks, or make those before the last number of ``harms`` harmless."""
        self.random = random.Random(seed)
        self.folder = folder
        plan = WorkerAllocationPlan(worker_count=2)
        self.api = Api(plan=plan, retries=100, environment=EnvironmentState.READY, taken=True)
        self.harms = {n: self._harm() for n in range(1, TASKS + 1)}
        self.harms |= {self.random.randrange(TASKS // 2, TASKS): "block"}
        if harms is not None:
            self.harms = dict.fromkeys(range(1, max(harms) + 1), "") | harms
        self.api.submit(*[self._task(harm) for harm in self.harms.values()])
        self.kills: Counter[str] = Counter()

    def _harm(self) -> str:
        names = ["kill_worker", "overdue", "kill_zygote", "kill_agent", ""]
        return self.random.choices(names, [20, 4, 1, 1, 974])[0]

    def _task(self, harm: str) -> TaskSubmission:
        seconds = self.random.choice(
            [0.0, 0.001 * self.random.random(), 0.01 * self.random.random()]
        )
        arguments: dict[str, Any] = {"folder": str(self.folder), "seconds": seconds, "harm": harm}
        timeout = 0.2 if harm == "overdue" else None
        handler = "tests.support.short_tasks:run"
        return TaskSubmission(handler=handler, arguments=arguments, timeout_seconds=timeout)

    async def run(self, faults: int = FAULTS) -> None:
        async with self.api.serving():
            while self.api.open:
                async with agent_process(self.api, self.folder, "127.0.0.1:1") as agent:
                    (self.folder / "agent.pid").write_text(str(agent.process.pid))
                    while faults and not self._over(agent.process.pid):
                        faults -= 1
                        await self._fault(agent)
                    pid = agent.process.pid
                    await until(partial(self._over, pid), on_timeout=lambda: self.api.open)

    def _over(self, agent: int) -> bool:
        return not self.api.open or not _lives(agent)

    async def _fault(self, agent: Running) -> None:
        """Let something go wrong a little later."""
        until_then = time.monotonic() + 0.3 * self.random.random()
        await until(lambda: time.monotonic() > until_then or not self.api.open)
        what = self.random.choices(["worker", "zygote", "agent", "cancel"], [6, 1, 2, 4])[0]
        self.kills[what] += 1
        if what == "cancel":
            if self.api.open:
                self.api.cancel(self.random.choice([*self.api.open]))
        elif what == "agent":
            await agent.kill()
        else:
            self._kill_below(agent.process.pid, workers=what == "worker")

    def _kill_below(self, agent: int, *, workers: bool) -> None:
        with suppress(psutil.NoSuchProcess):
            targets = psutil.Process(agent).children()
            if workers:
                targets = [worker for zygote in targets for worker in zygote.children()]
            if targets:
                self.random.choice(targets).kill()

    def ran(self) -> list[Ran]:
        lines = (line.split() for line in (self.folder / "log").read_text().splitlines())
        return [
            Ran(float(at), AttemptKey(int(task), int(attempt)), int(pid), what)
            for at, task, attempt, pid, what in lines
        ]


def _lives(pid: int) -> bool:
    with suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False


def judge(life: Life) -> None:
    """Compare what ran with what is recorded."""
    api, by_key = life.api, defaultdict(list)
    for ran in life.ran():
        by_key[ran.key].append(ran)
    assert api.results.keys() == life.harms.keys(), "each task has one result"
    assert not api.statuses["unknown"]
    _judge_runs(life, by_key)
    named = set().union(*api.named)
    failed = [*api.failures, *(r for r in api.results.values() if r.outcome is Outcome.FAILED)]
    kinds = {AttemptKey(report.task_id, report.attempt): report.kind for report in failed}
    assert set(kinds.values()) <= {*DEATHS, "timeout"}
    for task_id, harm in life.harms.items():
        if not (life.folder / f"harm-{task_id}").exists() or task_id in api.stopped:
            continue
        first = next(key for key in sorted(by_key) if key.task_id == task_id)
        kind = kinds.get(first)
        if harm in {"kill_worker", "kill_zygote", "kill_agent"}:
            assert kind in DEATHS or first in named, f"{harm} of {first}: {kind}"
        elif harm == "overdue":
            again = [ran.what for ran in by_key[first]].count("begin") == 2
            assert kind in {*DEATHS, "timeout"} or first in named or again, f"{first}: {kind}"
    deaths = life.kills["worker"] + 2 * life.kills["zygote"]
    caused = Counter(life.harms[int(p.name[5:])] for p in life.folder.glob("harm-*"))
    deaths += caused["kill_worker"] + 2 * caused["kill_zygote"]
    charged = [key for key, kind in kinds.items() if kind in DEATHS]
    assert len(charged) <= deaths, "no more than one task is charged for the death of a worker"
    over = [key for key in charged if by_key[key] and by_key[key][-1].what == "end"]
    assert len(over) <= 2, f"charged although they had ended: {over}"


def _judge_runs(life: Life, by_key: dict[AttemptKey, list[Ran]]) -> None:
    for key, runs in by_key.items():
        begins = [ran for ran in runs if ran.what == "begin"]
        assert len(begins) <= 2, f"{key} has begun three times"
        if len(begins) == 2:
            first, second = begins
            assert first.pid != second.pid, f"{key} has begun twice in one process"
            late = [ran for ran in life.ran() if ran.pid == first.pid and ran.at > second.at]
            assert not late, f"{key} has begun again although its worker lived"
        recorded = life.api.recorded.get(key.task_id)
        assert recorded is None or begins[-1].at <= recorded, f"{key} ran after its result"


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", range(examples(2)))
async def test_short_tasks_are_accounted_exactly_whatever_dies(tmp_path: Path, seed: int) -> None:
    life = Life(tmp_path, seed)
    await asyncio.wait_for(life.run(), 250)
    judge(life)


@pytest.mark.timeout(120)
async def test_a_task_that_kills_its_agent_and_ends_at_once_is_named_as_begun(
    tmp_path: Path,
) -> None:
    """Its worker lives some milliseconds longer and goes on. Named not, it would kill agents for ever."""
    life = Life(tmp_path, 0, harms={3: "kill_agent", 80: ""})
    await asyncio.wait_for(life.run(faults=0), 100)
    last = [ran for ran in life.ran() if ran.key == AttemptKey(3, 1)][-1]
    assert last.what == "end"
    assert AttemptKey(3, 1) in set().union(*life.api.named)
    assert life.api.results.keys() == life.harms.keys()
