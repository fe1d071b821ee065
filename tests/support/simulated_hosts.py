"""Hosts of one group in simulated time: real reactors over simulated workers and one simulated queue.

Nothing waits and nothing is random but what the caller draws. Messages take ``WIRE`` within a host and
``CALL`` to the API, which holds an empty claim for ``HOLD`` and wakes all of them when a task comes back.
"""

import heapq
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import msgspec

from mitosis.contracts.attempt import AttemptKey
from mitosis.contracts.wire import ClaimedTask, LeaseStanding
from mitosis.execution.events import (
    Begin,
    Claim,
    Claimed,
    Event,
    Instruction,
    Kill,
    Looked,
    Recall,
    Renewed,
    RenewNow,
    Report,
    Reported,
    Send,
    Spawn,
    TaskBegan,
    TasksEnded,
    TasksTakenBack,
    Withdraw,
    Withdrawn,
    WorkerReady,
)
from mitosis.execution.reactor import step
from mitosis.execution.session_workers import WITHDRAWN_SECONDS
from mitosis.execution.state import State
from mitosis.execution.unstarted import LOOK_SECONDS
from mitosis.ipc.messages import EncodedReport
from tests.support.agent_invariants import check_invariants

WIRE, CALL, HOLD = 0.0002, 0.003, 10.0
ACTIVE = LeaseStanding.ACTIVE


@dataclass
class SimulatedWorker:
    queue: deque[AttemptKey] = field(default_factory=deque)
    running: AttemptKey | None = None
    withdrawn: bool = False
    recalls: int = 0
    """Not read yet, since a handler in C runs."""


class SimulatedHost:
    """A reactor, its workers, and what carries its instructions out."""

    def __init__(self, world: "World", workers: int, prefetch: int | None, phase: float) -> None:
        self.world = world
        self.state = State(worker_count=workers, prefetch=prefetch)
        self.workers = [SimulatedWorker() for _ in range(workers)]
        self.renewals = self.events = 0
        self.feed(Begin())
        world.after(phase, self.look)

    @property
    def has_idle_worker(self) -> bool:
        return any(worker.running is None and not worker.queue for worker in self.workers)

    def feed(self, event: Event) -> None:
        for instruction in step(self.state, event):
            self.obey(instruction)
        self.events += 1
        if self.events % 64 == 0:
            check_invariants(self.state)

    def look(self) -> None:
        self.feed(Looked(in_contact=True))
        self.world.after(LOOK_SECONDS, self.look)

    def obey(self, instruction: Instruction) -> None:  # noqa: C901 - one line per instruction
        after = self.world.after
        match instruction:
            case Spawn(slot, generation):
                after(WIRE, lambda: self.feed(WorkerReady(slot, generation)))
            case Send(slot, _, tasks):
                keys = [task.key for task in tasks]
                after(WIRE, lambda: self.arrive(slot, keys))
            case Recall(slot, _):
                after(WIRE, lambda: self.recall(slot))
            case Withdraw(slot, _):
                self.workers[slot].withdrawn = True
                after(WITHDRAWN_SECONDS, lambda: self.withdrawn(slot))
            case Claim():
                after(CALL, lambda: self.world.claim(self, instruction))
            case Report(reports):
                answer = Reported(tuple(report.key for report in reports), ACTIVE)
                after(2 * CALL, lambda: self.feed(answer))
            case RenewNow():
                self.renewals += 1
                after(CALL, self.renew)
            case Kill():
                raise AssertionError("every worker here answers")

    def arrive(self, slot: int, keys: Sequence[AttemptKey]) -> None:
        self.workers[slot].queue.extend(keys)
        if self.workers[slot].running is None:
            self.begin(slot)

    def begin(self, slot: int) -> None:
        worker = self.workers[slot]
        if worker.withdrawn and worker.queue:
            worker.running, worker.withdrawn = None, False
            self.give_back(slot)
            return
        key = worker.running = worker.queue.popleft() if worker.queue else None
        if key is not None:
            self.world.begun(key)
            at = self.world.now
            self.world.after(WIRE, lambda: self.feed(TaskBegan(slot, 0, key, at)))
            self.world.after(self.world.seconds[key.task_id], lambda: self.end(slot, key, at))

    def end(self, slot: int, key: AttemptKey, began_at: float) -> None:
        report = EncodedReport(key, began_at, self.world.now, b"{}")
        self.world.after(WIRE, lambda: self.feed(TasksEnded(slot, 0, (report,))))
        self.world.ended[key.task_id] += 1
        if self.world.reads_late:
            self.begin(slot)
            self.read_recalls(slot)
        else:
            self.read_recalls(slot)
            self.begin(slot)

    def read_recalls(self, slot: int) -> None:
        worker = self.workers[slot]
        for _ in range(worker.recalls):
            self.give_back(slot)
        worker.recalls = 0

    def recall(self, slot: int) -> None:
        worker = self.workers[slot]
        if worker.running is not None and self.world.deaf:
            worker.recalls += 1
        else:
            self.give_back(slot)

    def give_back(self, slot: int) -> None:
        keys = tuple(self.workers[slot].queue)
        self.workers[slot].queue.clear()
        self.world.after(WIRE, lambda: self.feed(TasksTakenBack(slot, 0, keys)))

    def withdrawn(self, slot: int) -> None:
        self.feed(Withdrawn(slot, 0, self.workers[slot].running))

    def renew(self) -> None:
        returned = frozenset(self.state.returned)
        self.world.take_back(returned)
        self.world.after(CALL, lambda: self.feed(Renewed(ACTIVE, None, returned)))


class World:
    """The queue of the group, and time."""

    def __init__(
        self, seconds: Sequence[float], *, deaf: bool = False, reads_late: bool = False
    ) -> None:
        """Submit tasks.

        Args:
            seconds: how long each takes, in the order of submission.
            deaf: workers read no message while a task runs, as in a handler in C.
            reads_late: a worker begins its next task before it reads what came meanwhile.
        """
        self.deaf, self.reads_late = deaf, reads_late
        self.now = 0.0
        self.seconds = dict(enumerate(seconds, 1))
        self.ready = deque(AttemptKey(n, 0) for n in self.seconds)
        self.ended: Counter[int] = Counter()
        self.waiting = set(self.seconds)
        self.hosts: list[SimulatedHost] = []
        self.idle_since: float | None = None
        self.longest_wait = 0.0
        """How long a task has waited while a worker somewhere was idle, at most."""
        self._claims: list[tuple[SimulatedHost, Claim, float]] = []
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0

    def host(self, workers: int, prefetch: int | None, phase: float) -> SimulatedHost:
        self.hosts.append(SimulatedHost(self, workers, prefetch, phase))
        return self.hosts[-1]

    def after(self, seconds: float, act: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._due, (self.now + seconds, self._count, act))

    def run(self) -> None:
        """Until every task has ended."""
        while self.ended.total() < len(self.seconds):
            self.now, _, act = heapq.heappop(self._due)
            self._measure()
            act()
            self._measure()

    def _measure(self) -> None:
        if not any(host.has_idle_worker for host in self.hosts):
            self.idle_since = None
            return
        if self.idle_since is None:
            self.idle_since = self.now
        if self.waiting:
            self.longest_wait = max(self.longest_wait, self.now - self.idle_since)

    def begun(self, key: AttemptKey) -> None:
        assert key.task_id in self.waiting, "begun twice"
        self.waiting.discard(key.task_id)

    def claim(self, host: SimulatedHost, claim: Claim, until: float | None = None) -> None:
        if until is None:
            until, most = self.now + (HOLD if claim.max_late else 0.0), claim.max_tasks
        else:
            most = claim.max_late
        keys = [self.ready.popleft() for _ in range(min(most, len(self.ready)))]
        if not keys and self.now < until:
            waiter = (host, claim, until)
            self._claims.append(waiter)
            self.after(until - self.now, lambda: self._answer_if_waiting(waiter))
            return
        tasks = tuple(
            ClaimedTask(task_id=key.task_id, attempt=key.attempt + 1, spec=msgspec.Raw(b"{}"))
            for key in keys
        )
        self.after(CALL, lambda: host.feed(Claimed(claim.claim_seq, ACTIVE, tasks)))

    def _answer_if_waiting(self, waiter: tuple[SimulatedHost, Claim, float]) -> None:
        if waiter in self._claims:
            self._claims.remove(waiter)
            self.claim(*waiter)

    def take_back(self, keys: frozenset[AttemptKey]) -> None:
        for key in sorted(keys):
            if key not in self.ready:
                assert key.task_id in self.waiting, "returned after it began"
                self.ready.append(key)
        if self.ready:
            waiting, self._claims = self._claims, []
            for waiter in reversed(waiting):  # the host that has returned it asks again first
                self.claim(*waiter)
