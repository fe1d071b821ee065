"""Drives one campaign over runs: a stack in parts, a few runs at a time, a kill -9 at each planned moment.

Judges nothing: it collects facts for the judge.
"""

import random
import signal
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TypeVar
from uuid import UUID

from mitosis.client.sync import SyncClient
from mitosis.contracts.allocation import WorkerAllocationPlan
from mitosis.contracts.errors import ApiUnavailable, InvalidTransition
from mitosis.contracts.http import TaskGroupSpec
from mitosis.contracts.lifecycle import RUN
from tests.chaos.campaign import check_code
from tests.chaos.plan import Victim
from tests.chaos.runs.database import RunDatabase
from tests.chaos.runs.facts import RunCampaignFacts, executed
from tests.chaos.runs.plan import ROOT, STANDING, Moment, PlannedRun
from tests.chaos.victims import kill
from tests.support.admin import admin_client
from tests.support.prepared import PreparedPopen
from tests.support.program import running_up
from tests.support.waiting import wait_until

T = TypeVar("T")
BESIDE = 4
"""Runs that go on beside the one whose moment is awaited."""
MOMENT_SECONDS = 150.0
SETTLED_SECONDS = 180.0
LAST_WORDS_SECONDS = 60.0
LONGEST_BEFORE_KILL_SECONDS = 0.06


@dataclass
class RunCampaign:
    """One campaign in an empty ``folder``, whose ``run_dir`` (short, also empty) is for sockets."""

    plan: list[PlannedRun]
    seed: int
    folder: Path
    run_dir: Path
    say: Callable[[str], None] = print

    def __post_init__(self) -> None:
        self.data_dir = self.folder / "data"
        self.records = self.folder / "records"
        self.dice = random.Random(self.seed + 1)
        self.started: dict[int, UUID] = {}
        self.killed: list[str] = []
        self._up: PreparedPopen
        self._database: RunDatabase

    def run(self) -> RunCampaignFacts:
        """All of it, to the end of the stack.

        Raises:
            AssertionError: a run does not come to its moment, or does not end.
        """
        check_code()
        self.records.touch()
        with ExitStack() as exits:
            more = {"MITOSIS_RUN_DIR": str(self.run_dir / "stack")}
            program = ("tests.chaos.parts", str(self.data_dir))
            self._up = exits.enter_context(running_up(self.data_dir, more=more, program=program))
            self._database = RunDatabase.of(self.data_dir, self.run_dir / "stack")
            self._create_group()
            self._carry_out([one for one in self.plan if not one.own_group])
            with admin_client(self.data_dir) as client:
                client.close_group(STANDING)
            self._carry_out([one for one in self.plan if one.own_group])
            self._wait_for_last_words()
            facts = self._facts()
            self._up.send_signal(signal.SIGINT)
            assert self._up.wait(90) == 0
        return facts

    def _create_group(self) -> None:
        allocation = WorkerAllocationPlan(
            worker_count=4,
            python_path=(ROOT,),
            environment={"CHAOS_RUN_RECORDS": str(self.records)},
        )
        spec = TaskGroupSpec(name=STANDING, worker_allocation_plan=allocation)
        with admin_client(self.data_dir) as client:
            client.create_group(spec)

    def _carry_out(self, runs: list[PlannedRun]) -> None:
        directed = [one for one in runs if one.kill is not None]
        others = [one for one in runs if one.kill is None]
        with ThreadPoolExecutor(BESIDE + 1) as threads:
            beside = threads.map(self._carry_out_one, others)
            for one in directed:
                self._carry_out_one(one)
            list(beside)

    def _carry_out_one(self, planned: PlannedRun) -> None:
        """Start a run, have it killed and cancelled as planned, and wait for its end."""
        one = Carried(self, planned)
        one.carry_out()

    def kill(self, victim: Victim, moment: Moment, number: int) -> None:
        kill(self._up.pid, victim, self.data_dir, self.dice)
        self.killed.append(f"{victim} at {moment}")
        self.say(f"killed {victim}, run {number}: {moment}; {len(self.started)} started")

    def client(self) -> SyncClient:
        return admin_client(self.data_dir)

    def is_at(self, run_id: UUID, moment: Moment) -> bool:
        return self._database.is_at(run_id, moment)

    def _wait_for_last_words(self) -> None:
        wait_until(
            lambda: not any(self._database.leftovers().values()),
            LAST_WORDS_SECONDS,
            self._database.leftovers,
            interval=0.5,
        )

    def _facts(self) -> RunCampaignFacts:
        of = {one.number: one for one in self.plan}
        return RunCampaignFacts(
            runs=tuple(self._database.run(of[number], run) for number, run in self.started.items()),
            rows=self._database.count(),
            executions=executed(self.records.read_text()),
            leftovers=self._database.leftovers(),
        )

    def story(self) -> str:
        return self.data_dir.with_name("data.up.log").read_text()[-3000:]


@dataclass
class Carried:
    """One run of a campaign on its way."""

    campaign: RunCampaign
    planned: PlannedRun
    key: str = field(default_factory=lambda: uuid.uuid4().hex)

    def carry_out(self) -> None:
        kill_at = None if self.planned.kill is None else self.planned.kill[1]
        with ThreadPoolExecutor(1) as threads:
            if kill_at is Moment.CREATED:
                starting = threads.submit(self._start)
                self._kill_soon()
                run_id = starting.result()
            else:
                run_id = self._start()
            self.campaign.started[self.planned.number] = run_id
            if self.planned.cancelled:
                self._await(run_id, Moment.CANCEL)
                cancelling = threads.submit(self._cancel, run_id)
                if kill_at is Moment.CANCEL:
                    self._kill_soon()
                cancelling.result()
            elif kill_at not in {None, Moment.CREATED}:
                self._await(run_id, kill_at)
                self._kill()
        self._end(run_id)

    def _start(self) -> UUID:
        definition = self.planned.definition(str(self.campaign.records))
        return self._until_answered(
            lambda client: client.start_job(definition, idempotency_key=self.key).run_id
        )

    def _cancel(self, run_id: UUID) -> None:
        with suppress(InvalidTransition):  # it has ended
            self._until_answered(lambda client: client.cancel_run(run_id))

    def _await(self, run_id: UUID, moment: Moment | None) -> None:
        assert moment is not None
        wait_until(lambda: self.campaign.is_at(run_id, moment), MOMENT_SECONDS, self.campaign.story)

    def _kill_soon(self) -> None:
        time.sleep(self.campaign.dice.uniform(0, LONGEST_BEFORE_KILL_SECONDS))
        self._kill()

    def _kill(self) -> None:
        assert self.planned.kill is not None
        self.campaign.kill(*self.planned.kill, self.planned.number)

    def _end(self, run_id: UUID) -> None:
        left = time.monotonic() + SETTLED_SECONDS
        while True:
            view = self._until_answered(
                lambda client: client.run_view(run_id, wait=timedelta(seconds=10), until="ended")
            )
            if view.state in RUN.terminal:
                return
            assert time.monotonic() < left, f"run {self.planned.number} does not end: {view}"

    def _until_answered(self, call: Callable[[SyncClient], T]) -> T:
        left = time.monotonic() + MOMENT_SECONDS
        while True:
            try:
                with self.campaign.client() as client:
                    return call(client)
            except ApiUnavailable:
                if time.monotonic() > left:
                    raise
