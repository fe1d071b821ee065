"""Random lives of a lease session: no attempt is lost, doubled or started after its time."""

from collections import Counter, deque

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from mitosis.contracts.attempt import AttemptKey
from mitosis.contracts.control import LeaseEnd
from mitosis.contracts.outcome import ExitKind, ExitReason
from mitosis.contracts.wire import CancelOrder, ClaimedTask, LeaseStanding, StopOrder
from mitosis.execution.events import (
    AbandonClaim,
    Announced,
    Begin,
    CancelRunning,
    Claim,
    ClaimAbandoned,
    Claimed,
    Dismiss,
    Event,
    Fenced,
    Instruction,
    Kill,
    Looked,
    Paused,
    PoolLost,
    Recall,
    Renewed,
    Report,
    Reported,
    RespawnDue,
    Send,
    SessionOver,
    Spawn,
    SpawnLater,
    Stop,
    StopsOrdered,
    TaskBegan,
    TaskNotBegun,
    TasksEnded,
    TasksTakenBack,
    Withdraw,
    Withdrawn,
    WorkerExited,
    WorkerHangs,
    WorkerReady,
)
from mitosis.execution.reactor import step
from mitosis.execution.state import State
from mitosis.ipc.messages import EncodedReport
from tests.support.agent_invariants import check_invariants
from tests.support.examples import examples

KINDS = st.sampled_from([(False, False), (False, True), (True, False), (True, True)])
"""Of a claimed task: alone, announce."""
LENGTHS = st.sampled_from([(0.0001,), (0.0001, 0.005), (0.0001, 0.005, 1.0)])
"""How long tasks take here, seconds."""
FOREIGN = AttemptKey(2**40, 7)
"""What a mark says that a task has written over."""


class World(RuleBasedStateMachine):
    """Workers, an API and time around the reactor, all of them free to misbehave within the protocol."""

    def __init__(self) -> None:
        super().__init__()
        self.state = State(worker_count=3)
        self.processes: dict[tuple[int, int], deque[AttemptKey]] = {}
        self.waiting: dict[tuple[int, int], deque[AttemptKey]] = {}
        self.running: dict[tuple[int, int], AttemptKey] = {}
        self.recalls: set[tuple[int, int]] = set()
        self.withdrawn: set[tuple[int, int]] = set()
        self.begun: Counter[AttemptKey] = Counter()
        self.begun_by: dict[tuple[int, int], set[AttemptKey]] = {}
        self.unsent: dict[tuple[int, int], list[EncodedReport]] = {}
        self.killers: set[AttemptKey | None] = set()
        self.stopped: set[AttemptKey] = set()
        self.respawns: list[SpawnLater] = []
        self.claim: Claim | None = None
        self.abandoned = False
        self.sent: Counter[AttemptKey] = Counter()
        self.reported: dict[AttemptKey, int] = {}
        self.claimed: set[AttemptKey] = set()
        self.recorded: set[AttemptKey] = set()
        self.dropped: set[AttemptKey] = set()
        self.next_id = 1
        self.over = False
        self.ending = False
        self.fenced = False
        self.pool_lost = False
        self.lengths: tuple[float, ...] = ()
        self.feed(Begin())

    @initialize(data=st.data(), lengths=LENGTHS)
    def begin(self, data: st.DataObject, lengths: tuple[float, ...]) -> None:
        self.lengths = lengths
        self.work(data=data, times=3, sent=True)

    @rule(data=st.data(), times=st.integers(1, 8), sent=st.booleans())
    def work(self, data: st.DataObject, times: int, sent: bool) -> None:
        """Let nothing go wrong for a while: else hardly any run comes to several tasks in a worker."""
        for worker in [*self.processes]:
            self.feed(WorkerReady(*worker))
        for _ in range(times):
            if self.claim:
                self._answer_claim(20, again=False, kind=(False, False), ends=False)
            if self._working():
                self.begin_task(data=data, said=False)
            if self.running:
                self.end_task(data=data, sent=sent)

    def feed(self, event: Event) -> None:
        for instruction in step(self.state, event):
            self.obey(instruction)

    def obey(self, instruction: Instruction) -> None:  # noqa: C901, PLR0912, PLR0915 - one line each
        match instruction:
            case Spawn(slot, generation):
                assert not self.pool_lost, "nothing can start it"
                assert (slot, generation) not in self.processes
                assert not any(s == slot for s, _ in self.processes), "two processes in one slot"
                self.processes[slot, generation] = deque()
            case SpawnLater():
                self.respawns.append(instruction)
            case Send(slot, generation, tasks):
                assert not self.ending, "sent after the end"
                assert not self.fenced, "sent behind the fence"
                for task in tasks:
                    assert not task.announce or task.key in self.recorded, "not announced"
                    self.sent[task.key] += 1
                    queue = self.processes[slot, generation]
                    assert not (queue and self.state.repeated), "beside one that runs again"
                    queue.append(task.key)
            case Recall(slot, generation):
                assert (slot, generation) not in self.recalls, "recalled twice"
                self.recalls.add((slot, generation))
            case Withdraw(slot, generation):
                assert (slot, generation) in self.recalls
                self.withdrawn.add((slot, generation))
            case Claim():
                assert self.claim is None, "two claims in flight"
                assert not self.ending
                self.claim, self.abandoned = instruction, False
            case AbandonClaim():
                self.abandoned = True
            case Report(reports):
                for report in reports:
                    assert report.key not in self.reported, "reported twice"
                    self.reported[report.key] = 1
            case Kill(slot, generation):
                assert (slot, generation) in self.processes
            case SessionOver():
                assert not self.over
                self.over = True
            case CancelRunning(slot, generation, key):
                assert key in self.stopped or self.ending or not self.state.active
                self._cancel((slot, generation), key)
            case Dismiss():
                assert self.ending or not self.state.active

    def _cancel(self, worker: tuple[int, int], key: AttemptKey) -> None:
        """Let the worker report what it has not begun as cancelled; what it runs ends later."""
        if key in self.processes[worker]:
            self.processes[worker].remove(key)
            report = EncodedReport(key, None, 100.0, b"{}")
            self.unsent.setdefault(worker, []).append(report)

    # --- workers --------------------------------------------------------------------------------

    @precondition(lambda self: self.processes)
    @rule(data=st.data())
    def hello(self, data: st.DataObject) -> None:
        slot, generation = data.draw(st.sampled_from(sorted(self.processes)))
        self.feed(WorkerReady(slot, generation))

    def _working(self) -> list[tuple[int, int]]:
        idle = self.processes.keys() - self.running.keys() - self.withdrawn
        return sorted(worker for worker in idle if self.processes[worker])

    @precondition(lambda self: self._working())
    @rule(data=st.data(), said=st.booleans())
    def begin_task(self, data: st.DataObject, said: bool) -> None:
        worker = data.draw(st.sampled_from(self._working()))
        key = self.processes[worker].popleft()
        assert key not in self.killers, "begun again after the death of its worker"
        assert self.begun[key] < 2, "begun three times"
        assert key not in self.state.returned, "begun and returned"
        on_the_way = {report.key for reports in self.unsent.values() for report in reports}
        assert key not in on_the_way, "begun again although it has ended"
        self.begun[key] += 1
        self.begun_by.setdefault(worker, set()).add(key)
        self.running[worker] = key
        if said:
            self.feed(TaskBegan(*worker, key, 100.0))

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def learn_start(self, data: st.DataObject) -> None:
        worker = data.draw(st.sampled_from(sorted(self.running)))
        self.feed(TaskBegan(*worker, self.running[worker], 100.0))

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def not_begun(self, data: st.DataObject) -> None:
        """Give back what runs: the host has no process for its command."""
        worker = data.draw(st.sampled_from(sorted(self.running)))
        key = self.running.pop(worker)
        self.begun[key] -= 1
        self.begun_by[worker].discard(key)
        self.feed(TaskNotBegun(*worker, key, "no process"))
        assert key not in self.state.held
        if self.state.end is LeaseEnd.GONE:
            self.dropped.add(key)

    @precondition(lambda self: self.state.starved is not None)
    @rule()
    def end_pause(self) -> None:
        self.feed(Paused(None))

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def hang(self, data: st.DataObject) -> None:
        """A timer may be late: then the task that it is about has ended, and another one runs."""
        worker = data.draw(st.sampled_from(sorted(self.running)))
        running = self.running[worker]
        self.feed(TaskBegan(*worker, running, 100.0))
        key = data.draw(st.sampled_from(sorted(self.begun_by[worker])))
        out = step(self.state, WorkerHangs(*worker, key, "too long"))
        assert (Kill(*worker) in out) == (key == running), "killed for a task that had ended"
        for instruction in out:
            self.obey(instruction)

    @precondition(lambda self: self.recalls)
    @rule(data=st.data(), seen=st.booleans())
    def answer_recall(self, data: st.DataObject, seen: bool) -> None:
        """Give back what waits; the agent may have ``seen`` the mark of a start that did not follow."""
        worker = data.draw(st.sampled_from(sorted(self.recalls)))
        self.recalls.discard(worker)
        self.withdrawn.discard(worker)
        keys = tuple(self.processes[worker])
        if seen and keys and worker not in self.running:
            self.feed(TaskBegan(*worker, keys[0], 100.0))
        self.processes[worker].clear()
        self.feed(TasksTakenBack(*worker, keys))

    @precondition(lambda self: self.withdrawn)
    @rule(data=st.data())
    def withdraw(self, data: st.DataObject) -> None:
        worker = data.draw(st.sampled_from(sorted(self.withdrawn)))
        self.feed(Withdrawn(*worker, self.running.get(worker)))

    @rule(in_contact=st.booleans(), times=st.integers(1, 6))
    def look(self, in_contact: bool, times: int) -> None:
        for _ in range(times):
            self.feed(Looked(in_contact))

    @precondition(lambda self: self.running)
    @rule(data=st.data(), sent=st.booleans())
    def end_task(self, data: st.DataObject, sent: bool) -> None:
        seconds = data.draw(st.sampled_from(self.lengths))
        worker = data.draw(st.sampled_from(sorted(self.running)))
        key = self.running.pop(worker)
        reports = self.unsent.setdefault(worker, [])
        reports.append(EncodedReport(key, 100.0, 100.0 + seconds, b"{}"))
        if sent:
            self.feed(TasksEnded(*worker, tuple(reports)))
            reports.clear()

    @precondition(lambda self: self.processes)
    @rule(
        data=st.data(),
        reason=st.sampled_from([(ExitKind.SIGNAL, 9), (ExitKind.SUCCESS, 0)]),
        mark=st.sampled_from([None, FOREIGN]),
    )
    def die(
        self, data: st.DataObject, reason: tuple[ExitKind, int], mark: AttemptKey | None
    ) -> None:
        worker = data.draw(st.sampled_from(sorted(self.processes)))
        del self.processes[worker]
        self.exits(worker, ExitReason(*reason), mark)

    def exits(
        self, worker: tuple[int, int], reason: ExitReason, mark: AttemptKey | None = None
    ) -> None:
        """Let a worker die; what ran is charged, and what had ended unreported runs again once.

        ``mark``: what is read if it ran nothing.
        """
        self.recalls.discard(worker)
        self.withdrawn.discard(worker)
        has_begun = self.begun_by.get(worker, set())
        ended = {report.key for report in self.unsent.pop(worker, [])} & has_begun
        running = self.running.pop(worker, None)
        last = {running} - {None}
        self.killers |= last
        charged = last | ended & (self.state.repeated | self.state.cancelled)
        before = set(self.reported)
        begun = frozenset(self.begun_by.pop(worker, set()))
        seen = running or mark
        self.feed(WorkerExited(*worker, reason, False, 101.0, running=seen, begun=begun))
        assert self.reported.keys() - before == charged
        if self.state.active:
            assert ended - charged <= self.state.repeated | self.state.returned
        elif self.state.end is LeaseEnd.GONE:
            self.dropped |= ended - charged

    @precondition(lambda self: self.running or any(self.unsent.values()))
    @rule()
    def lose_pool(self) -> None:
        self.pool_lost = True
        self.feed(PoolLost())
        for worker in sorted(self.processes):
            self.exits(worker, ExitReason(ExitKind.UNKNOWN))
        self.processes.clear()

    @precondition(lambda self: self.pool_lost)
    @rule()
    def begin_again(self) -> None:
        self.pool_lost = False
        self.feed(Begin())

    @precondition(lambda self: self.respawns)
    @rule()
    def respawn(self) -> None:
        due = self.respawns.pop()
        self.feed(RespawnDue(due.slot, due.generation))

    # --- the API --------------------------------------------------------------------------------

    @precondition(lambda self: self.claim)
    @rule(new=st.integers(0, 20), again=st.booleans(), kind=KINDS, ends=st.booleans())
    def answer_claim(self, new: int, again: bool, kind: tuple[bool, bool], ends: bool) -> None:
        self._answer_claim(new, again=again, kind=kind, ends=ends)

    def _answer_claim(self, new: int, *, again: bool, kind: tuple[bool, bool], ends: bool) -> None:
        alone, announce = kind
        assert self.claim is not None
        claim, self.claim = self.claim, None
        fresh = [AttemptKey(self.next_id + n, 1) for n in range(min(new, claim.max_tasks))]
        self.next_id += len(fresh)
        keys = [*fresh, *(sorted(self.state.held)[:2] if again else [])]
        keys = [key for key in keys if key in fresh or key not in self.reported]
        self.claimed |= set(fresh)
        standing = LeaseStanding.ENDING if ends and new == 20 else LeaseStanding.ACTIVE
        self.ending = self.ending or standing is LeaseStanding.ENDING
        tasks = tuple(
            ClaimedTask(
                task_id=k.task_id,
                attempt=k.attempt,
                spec=msgspec.Raw(b"{}"),
                alone=alone,
                announce=announce,
            )
            for k in keys
        )
        self.feed(Claimed(claim.claim_seq, standing, tasks))

    @precondition(lambda self: self.claim and self.abandoned)
    @rule()
    def abandon_claim(self) -> None:
        assert self.claim is not None
        claim, self.claim = self.claim, None
        self.feed(ClaimAbandoned(claim.claim_seq))

    @precondition(lambda self: self.state.unreported)
    @rule(data=st.data())
    def acknowledge(self, data: st.DataObject) -> None:
        keys = data.draw(st.sets(st.sampled_from(sorted(self.state.unreported)), min_size=1))
        self.feed(Reported(tuple(keys), LeaseStanding.ACTIVE))

    @precondition(lambda self: self.state.held - self.state.unreported.keys())
    @rule(data=st.data())
    def stop_tasks(self, data: st.DataObject) -> None:
        """Cancel single tasks, and repeat earlier orders; the session has looked what runs."""
        held = sorted(self.state.held - self.state.unreported.keys())
        keys = data.draw(st.sets(st.sampled_from(held), min_size=1, max_size=3))
        self.stopped |= keys
        for worker, key in sorted(self.running.items()):
            self.feed(TaskBegan(*worker, key, 100.0))
        orders = [
            StopOrder(task_id=key.task_id, attempt=key.attempt, grace_seconds=1, reason="")
            for key in sorted(self.stopped & set(held))
        ]
        self.feed(StopsOrdered(tuple(orders)))
        assert self.stopped & set(self.running.values()) <= self.state.cancelled

    @rule(on=st.booleans())
    def fence(self, on: bool) -> None:
        self.fenced = on
        self.feed(Fenced(on=on))

    @rule()
    def renew(self) -> None:
        returned = frozenset(self.state.returned)
        self.feed(Renewed(LeaseStanding.ACTIVE, None, returned))

    @precondition(lambda self: self.state.announced)
    @rule(data=st.data())
    def answer_announcement(self, data: st.DataObject) -> None:
        keys = self.state.announced
        recorded = data.draw(st.sets(st.sampled_from(keys)))
        self.recorded |= recorded
        self.feed(Announced(frozenset(keys), frozenset(recorded)))

    @precondition(lambda self: len(self.claimed) > 30)
    @rule(kill=st.booleans(), gone=st.booleans())
    def end_lease(self, kill: bool, gone: bool) -> None:
        order = CancelOrder(kill=kill, grace_seconds=1, reason="test")
        standing = LeaseStanding.GONE if gone else LeaseStanding.ENDING
        before = self.state.held - self.state.unreported.keys()
        self.ending = True
        if gone:
            self.dropped |= before | self.state.returned
        self.feed(Renewed(standing, None if gone else order))

    @precondition(lambda self: len(self.claimed) > 30)
    @rule()
    def stop(self) -> None:
        self.ending = True
        self.feed(Stop())

    # --- what always holds ----------------------------------------------------------------------

    @invariant()
    def state_is_whole(self) -> None:
        check_invariants(self.state)

    @invariant()
    def no_attempt_is_lost(self) -> None:
        """Every claimed attempt is in hand, reported, or given back; unless the lease is gone."""
        gone = self.state.end is LeaseEnd.GONE and not self.over
        if gone or (self.over and self.dropped):
            return
        known = self.state.held | set(self.reported) | self.given_back
        assert self.claimed <= known, f"lost: {self.claimed - known}"

    @invariant()
    def workers_that_count_as_alive_have_a_process(self) -> None:
        alive = {(w.slot, w.generation) for w in self.state.workers if w.alive}
        assert alive <= self.processes.keys(), "the session waits for a worker that is not there"

    @invariant()
    def workers_hold_what_the_reactor_thinks(self) -> None:
        for (slot, generation), queue in self.processes.items():
            worker = self.state.workers[slot]
            if worker.generation == generation and not self.state.over:
                begun = self.begun_by.get((slot, generation), set())
                over = begun | {report.key for report in self.unsent.get((slot, generation), [])}
                there = [k for k in worker.unstarted if k != worker.announced and k not in over]
                assert there == list(queue) or (not there and (slot, generation) in self.withdrawn)

    @property
    def given_back(self) -> set[AttemptKey]:
        self._given: set[AttemptKey] = getattr(self, "_given", set()) | self.state.returned
        return self._given


World.TestCase.settings = settings(max_examples=examples(20), stateful_step_count=50)
TestWorld = World.TestCase
