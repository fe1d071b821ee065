"""Drives one campaign over worker services: the stack in parts, 20 services, faults while tasks are left.

Judges nothing: it collects facts for the judge.
"""

import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import psutil
import yaml

from mitosis.client.sync import SyncClient
from mitosis.contracts.errors import ApiUnavailable, NotFound
from mitosis.contracts.http import TaskGroupInfo, TaskGroupSpec, TaskInfo
from mitosis.contracts.task import TaskSubmission
from tests.chaos.plan import Victim
from tests.chaos.services.judge import Result, ServiceFacts
from tests.chaos.victims import kill
from tests.support.admin import admin_address, admin_client
from tests.support.checkout import ROOT
from tests.support.prepared import PreparedPopen
from tests.support.processes import descendants, living
from tests.support.program import clean_environment, running_up
from tests.support.servers import LoopThread
from tests.support.waiting import wait_until
from tests.support.wire import Wire

T = TypeVar("T")
GROUPS = ("one", "two", "three")
CALM = "calm"
"""The group of the tasks that come one by one when all services wait."""
NAMED_TASKS = ("shop/fold@1", "shop/fold@2", "shop/cut@1", "press/print@1")
FEWEST = len(NAMED_TASKS)
"""So many services support each named task at least twice."""
PRIORITIES = (50, 100, 100, 200)
SLOTS = 2
SUPPORTED_BY_AT_LEAST = 2
LONGEST_PAUSE_SECONDS = 2.0
LONGEST_STOP_SECONDS = 4.0
LONGEST_CUT_SECONDS = 6.0
NETWORKS = 2
"""Parts of the fleet that are cut off for themselves."""
CALLS = ("/workers", "/workers/heartbeat", "/workers/claim", "/workers/report", "/workers/goodbye")
"""Ends of the paths whose answers get lost."""
MOST_LOST_ANSWERS = 4
ANSWERED_SECONDS = 120.0
PROGRESS_SECONDS = 180.0
"""So long without a task that ends is starvation."""
CALM_TASKS = 3
"""For each named task, one after the other, when all services wait."""


@dataclass
class Service:
    """One worker service, started again when it has ended."""

    worker_id: str
    priorities: dict[str, int]
    """By named task."""
    always: frozenset[str]
    """Named tasks that it never withdraws."""
    stamps: dict[str, list[str]] = field(default_factory=dict)
    process: PreparedPopen | None = None


@dataclass
class ServiceCampaign:
    """One campaign in an empty ``folder``, whose ``run_dir`` (short, also empty) is for sockets."""

    folder: Path
    run_dir: Path
    seed: int
    services: int
    tasks: int
    say: Callable[[str], None] = print

    def __post_init__(self) -> None:
        self.dice = random.Random(self.seed)
        self.data_dir = self.folder / "data"
        self.records = self.folder / "records"
        self.fleet = [self._service(number) for number in range(self.services)]
        self.done: Counter[str] = Counter()
        self._up: PreparedPopen
        self._loop = LoopThread()
        self._wires: list[Wire] = []

    def _service(self, number: int) -> Service:
        few = self.dice.sample(NAMED_TASKS, self.dice.randint(1, 3))
        always = {
            task
            for place, task in enumerate(NAMED_TASKS)
            if (number - place) % len(NAMED_TASKS) < SUPPORTED_BY_AT_LEAST and number < FEWEST
        } or {few[0]}
        priorities = {task: self.dice.choice(PRIORITIES) for task in sorted({*few, *always})}
        return Service(f"w-{number}", priorities, frozenset(always))

    def run(self) -> ServiceFacts:
        """All of it, to the end of the stack.

        Raises:
            AssertionError: no task ends for a long time, or a process does not end.
        """
        self.records.touch()
        with ExitStack() as exits:
            exits.enter_context(self._loop)
            exits.callback(self._kill_services)
            more = {"MITOSIS_RUN_DIR": str(self.run_dir / "stack")}
            program = ("tests.chaos.parts", str(self.data_dir), "no-agent")
            self._up = exits.enter_context(running_up(self.data_dir, more=more, program=program))
            self._wires = [self._wire(exits) for _ in range(NETWORKS)]
            submitted = self._submit()
            for one in self.fleet:
                for task in one.priorities:
                    self._configure(one, task)
                self._start(one)
            self._disturb()
            calm, more_tasks = self._calm()
            facts = self._facts(submitted | more_tasks)
            facts.calm = calm
            below = self._below()
            self._stop_services()
            self._up.send_signal(signal.SIGINT)
            assert self._up.wait(90) == 0
            facts.left = [str(process) for process in living(below)]
        return facts

    # --- set up ---------------------------------------------------------------------------------

    def _wire(self, exits: ExitStack) -> Wire:
        """A network between the API and some services. The API keeps its port over restarts."""
        opening = Wire(admin_address(self.data_dir)[0]).open()
        wire = self._loop.run(opening.__aenter__())
        exits.callback(lambda: self._loop.run(opening.__aexit__(None, None, None)))
        return wire

    def _submit(self) -> dict[int, tuple[str, int]]:
        submitted: dict[int, tuple[str, int]] = {}
        for place, group in enumerate(GROUPS):
            numbers = range(place, self.tasks, len(GROUPS))
            named = [self.dice.choice(NAMED_TASKS) for _ in numbers]
            submitted |= self._submit_to(group, list(zip(named, numbers, strict=True)))
        return submitted

    def _submit_to(
        self, group: str, given: list[tuple[str, int]], *, new: bool = True
    ) -> dict[int, tuple[str, int]]:
        tasks = [self._task(named_task, number) for named_task, number in given]
        if new:
            spec = TaskGroupSpec(name=group, kind="service")
            self._answered(lambda client: client.create_group(spec))
        ids = self._answered(lambda client: client.submit(group, tasks))
        return dict(zip(ids, given, strict=True))

    def _task(self, named_task: str, number: int) -> TaskSubmission:
        arguments = {"number": number, "records": str(self.records)}
        return TaskSubmission(named_task=named_task, arguments=arguments)

    def _configure(self, one: Service, named_task: str) -> None:
        """Write its file, with a configuration that no other file has ever had."""
        written = self._file(one, named_task)
        namespace, name, version = written.stem.split(" ")
        stamps = one.stamps.setdefault(named_task, [])
        stamps.append(f"{one.worker_id} {named_task} {len(stamps)}")
        fields = {
            "namespace_name": namespace,
            "name": name,
            "version": version,
            "handler": "tests.chaos.services.work:answer",
            "configuration": {"stamp": stamps[-1]},
            "priority": one.priorities[named_task],
        }
        written.parent.mkdir(exist_ok=True)
        new = written.with_name("next")
        new.write_text(yaml.safe_dump(fields))
        new.rename(written)

    def _file(self, one: Service, named_task: str) -> Path:
        words = named_task.replace("/", " ").replace("@", " ")
        return self.folder / f"config-{one.worker_id}" / f"{words}.yaml"

    def _start(self, one: Service) -> None:
        _, token = admin_address(self.data_dir)
        url = self._wires[self.fleet.index(one) % NETWORKS].url
        words = ["worker", "--id", one.worker_id, "--slots", str(SLOTS)]
        words += ["--state-dir", str(self.folder / one.worker_id), "--look-seconds", "0.5"]
        words += ["--config", str(self.folder / f"config-{one.worker_id}")]
        env = clean_environment(MITOSIS_API_URL=url, MITOSIS_TOKEN=token)
        with (self.folder / f"{one.worker_id}.log").open("ab") as log:
            one.process = PreparedPopen("mitosis.cli", words, env, log.fileno(), cwd=ROOT)

    # --- faults ---------------------------------------------------------------------------------

    def _disturb(self) -> None:
        """Do random things until no task is left."""
        faults = (
            [self._kill_one] * 4
            + [self._stop_one] * 2
            + [self._change_one] * 4
            + [self._drain_one] * 2
            + [self._withdraw_one] * 2
            + [self._cut_network, self._lose_answers] * 2
            + [self._kill_api, self._kill_control, self._kill_postgres]
        )
        left, since = self._unfinished(), time.monotonic()
        while left:
            time.sleep(self.dice.uniform(0, LONGEST_PAUSE_SECONDS))
            fault = self.dice.choice(faults)
            self.done[fault.__name__] += 1
            fault()
            for one in self.fleet:
                if one.process is None or one.process.poll() is not None:
                    self._start(one)
            now = self._unfinished()
            if now < left:
                left, since = now, time.monotonic()
            assert time.monotonic() < since + PROGRESS_SECONDS, f"{left} tasks do not end"
            if sum(self.done.values()) % 10 == 0:
                self.say(f"{left} tasks left, {sum(self.done.values())} faults")

    def _kill_one(self) -> None:
        process = self.dice.choice(self.fleet).process
        assert process is not None
        process.kill()
        process.wait(30)

    def _stop_one(self) -> None:
        process = self.dice.choice(self.fleet).process
        assert process is not None
        process.send_signal(signal.SIGSTOP)
        time.sleep(self.dice.uniform(0, LONGEST_STOP_SECONDS))
        process.send_signal(signal.SIGCONT)

    def _change_one(self) -> None:
        one = self.dice.choice(self.fleet)
        self._configure(one, self.dice.choice(sorted(one.priorities)))

    def _withdraw_one(self) -> None:
        """Let a service support a named task no more from its next start; after a change of it, again."""
        one = self.dice.choice(self.fleet)
        for task in sorted(one.priorities.keys() - one.always):
            self._file(one, task).unlink(missing_ok=True)

    def _cut_network(self) -> None:
        """Let nothing through for a time, in neither direction, and then drop what was under way."""
        wire = self.dice.choice(self._wires)
        self._loop.call(wire.cut)
        time.sleep(self.dice.uniform(0, LONGEST_CUT_SECONDS))
        self._loop.call(wire.mend)

    def _lose_answers(self) -> None:
        """Cut the connections of some calls after their transactions."""
        lost = self.dice.choice(self._wires).lose_answers
        lost[self.dice.choice(CALLS)] += self.dice.randint(1, MOST_LOST_ANSWERS)

    def _drain_one(self) -> None:
        """Drain a service, end it, and have the next process of it work again."""
        one = self.dice.choice(self.fleet)
        try:
            self._answered(lambda client: client.drain_worker(one.worker_id, reason="campaign"))
        except NotFound:  # it has not registered yet
            return
        self._end(one)
        self._answered(lambda client: client.resume_worker(one.worker_id))

    def _end(self, one: Service) -> None:
        assert one.process is not None
        one.process.terminate()
        one.process.wait(60)

    def _kill_api(self) -> None:
        kill(self._up.pid, Victim.API, self.data_dir, self.dice)

    def _kill_control(self) -> None:
        kill(self._up.pid, Victim.CONTROL, self.data_dir, self.dice)

    def _kill_postgres(self) -> None:
        kill(self._up.pid, Victim.POSTGRES, self.data_dir, self.dice)

    # --- end ------------------------------------------------------------------------------------

    def _calm(self) -> tuple[list[tuple[int, frozenset[str]]], dict[int, tuple[str, int]]]:
        """Submit single tasks while all services wait; return who should execute each, and the tasks."""
        for wire in self._wires:
            wire.lose_answers.clear()
        for one in self.fleet:
            for task in one.priorities:
                if not self._file(one, task).exists():
                    self._configure(one, task)
            if one.priorities.keys() > one.always:  # a new file counts from the next start
                self._end(one)
                self._start(one)
        wait_until(
            self._all_settled, ANSWERED_SECONDS, "not all have their configuration", interval=0.5
        )
        preferred: dict[str, frozenset[str]] = {}
        for task in NAMED_TASKS:
            of = {x.worker_id: x.priorities[task] for x in self.fleet if task in x.priorities}
            preferred[task] = frozenset(w for w, its in of.items() if its == max(of.values()))
        submitted: dict[int, tuple[str, int]] = {}
        for number, task in enumerate(NAMED_TASKS * CALM_TASKS):
            submitted |= self._submit_to(CALM, [(task, -1 - number)], new=number == 0)
            wait_until(lambda: self._unfinished() == 0, ANSWERED_SECONDS, task, interval=0.1)
        return [(i, preferred[task]) for i, (task, _) in submitted.items()], submitted

    def _all_settled(self) -> bool:
        """Whether all are healthy, and the API shows the last configuration of each."""
        with admin_client(self.data_dir) as client:
            found = [client.worker(one.worker_id) for one in client.workers()]
        shown = {
            (one.worker_id, f"{its.namespace}/{its.name}@{its.version}"): its.configuration
            for one in found
            for its in one.supported_tasks or ()
        }
        last = {key: {"stamp": stamps[-1]} for key, stamps in self._stamps().items()}
        return shown == last and all(
            one.health == "healthy" and one.draining_since is None for one in found
        )

    def _stamps(self) -> dict[tuple[str, str], list[str]]:
        return {
            (one.worker_id, task): stamps
            for one in self.fleet
            for task, stamps in one.stamps.items()
        }

    def _facts(self, submitted: dict[int, tuple[str, int]]) -> ServiceFacts:
        results: list[Result] = []
        counters: dict[str, tuple[int, int]] = {}
        for group in (*GROUPS, CALM):
            found, info = self._listed(group), self._counted(group)
            results += map(_result, found)
            listed = sum(one.state == "succeeded" for one in found)
            counters[group] = (info.tasks_succeeded, listed)
        return ServiceFacts(
            submitted=submitted,
            results=results,
            stamps=self._stamps(),
            counters=counters,
            executed=Counter(map(int, self.records.read_text().split())),
        )

    def _unfinished(self) -> int:
        return sum(one.tasks_unfinished for one in self._answered(lambda c: list(c.groups())))

    def _listed(self, group: str) -> list[TaskInfo]:
        return self._answered(lambda client: list(client.tasks(group)))

    def _counted(self, group: str) -> TaskGroupInfo:
        return self._answered(lambda client: client.group(group))

    def _answered(self, call: Callable[[SyncClient], T]) -> T:
        """Call the API, over its restarts."""
        until = time.monotonic() + ANSWERED_SECONDS
        while True:
            try:
                with admin_client(self.data_dir) as client:
                    return call(client)
            except (ApiUnavailable, OSError):
                if time.monotonic() > until:
                    raise
                time.sleep(0.2)

    def _below(self) -> list[psutil.Process]:
        roots = [self._up, *(one.process for one in self.fleet if one.process is not None)]
        return [process for root in roots for process in descendants(root.pid)]

    def _stop_services(self) -> None:
        for one in self.fleet:
            if one.process is not None and one.process.poll() is None:
                one.process.terminate()
        for one in self.fleet:
            if one.process is not None:
                one.process.wait(60)

    def _kill_services(self) -> None:
        for one in self.fleet:
            if one.process is not None and one.process.poll() is None:
                one.process.kill()


def _result(info: TaskInfo) -> Result:
    value = (info.detail or {}).get("result")
    return Result(
        info.task_id,
        info.state,
        info.attempt,
        info.worker_id,
        info.configuration_version,
        value if isinstance(value, dict) else None,
    )
