"""Moments of a session that real processes reach only now and then, held open here."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zmq

from mitosis.contracts.attempt import AttemptKey
from mitosis.contracts.outcome import ExitKind, ExitReason
from mitosis.contracts.wire import (
    CancelOrder,
    ClaimAnswer,
    ClaimedTask,
    ClaimTasks,
    LeaseStanding,
    StopOrder,
)
from mitosis.execution.events import Renewed, Reported, StopsOrdered
from mitosis.execution.router import Router
from mitosis.execution.session import Session, SessionParts, SessionTerms
from mitosis.ipc.codec import encode
from mitosis.ipc.messages import EncodedReport, Hello, TasksFinished, TaskStarted, WorkerToManager
from mitosis.worker.zygote_protocol import Ready
from tests.support.agents import until
from tests.support.fake_api import command

KILLED = ExitReason(ExitKind.SIGNAL, 9)


class OneTask:
    """An API that has one task, and afterwards none."""

    def __init__(self, task_id: int) -> None:
        spec = msgspec.Raw(msgspec.json.encode(command("/bin/true")))
        self.tasks = [ClaimedTask(task_id=task_id, attempt=1, spec=spec)]

    async def claim(self, request: ClaimTasks) -> ClaimAnswer:
        if not self.tasks:
            await asyncio.Event().wait()
        return ClaimAnswer(standing=LeaseStanding.ACTIVE, tasks=[self.tasks.pop()])


class Reports:
    """Keeps what sessions report, and acknowledges it when a test says so."""

    def __init__(self) -> None:
        self.reports: list[EncodedReport] = []
        self.subscribers: dict[int, Callable[[Reported], None]] = {}

    def subscribe(self, epoch: int, acknowledged: Callable[[Reported], None]) -> None:
        self.subscribers[epoch] = acknowledged

    def unsubscribe(self, epoch: int) -> None:
        self.subscribers.pop(epoch, None)

    def add(self, epoch: int, reports: Sequence[EncodedReport], urgent: bool) -> None:
        self.reports += reports


class NoProcesses:
    """A pool whose one worker is a socket of this test."""

    runs: AttemptKey | None = None
    """What shared memory says that the worker runs."""
    has_begun: frozenset[AttemptKey] = frozenset()

    async def start(self) -> Ready:
        return Ready(pid=1, forks=True, no_fork_reason=None, import_seconds=0.0)

    def running(self, slot: int) -> AttemptKey | None:
        return self.runs

    def begun(self, slot: int) -> frozenset[AttemptKey]:
        return self.has_begun

    def spawn(self, slot: int, generation: int) -> None:
        pass

    async def close(self) -> None:
        pass


class Worker:
    """A worker that is a socket of this test."""

    def __init__(self, context: "zmq.Context[Any]", router: Router, generation: int) -> None:
        self.socket = context.socket(zmq.DEALER)
        self.socket.setsockopt(zmq.IDENTITY, f"0:{generation}".encode())
        self.socket.connect(router.endpoint)
        self.generation = generation

    def says(self, message: WorkerToManager) -> None:
        self.socket.send(encode(message))

    def says_hello(self) -> None:
        self.says(Hello(0, self.generation, os.getpid(), (0,)))

    async def has_a_task(self) -> None:
        await until(lambda: self.socket.poll(0))


class Stage:
    """One router and one reporter, and the sessions and workers of a test."""

    def __init__(self, folder: Path) -> None:
        self.router, self.reports = Router(f"ipc://{folder}/workers"), Reports()
        self._context = zmq.Context()
        self._sessions: list[Session] = []
        self._workers: list[Worker] = []

    def session(self, epoch: int, task_id: int) -> tuple[Session, Worker]:
        """Start a session that has one task and one worker; its generation is the epoch."""
        parts: Any = SessionParts(
            OneTask(task_id),  # type: ignore[arg-type]
            self.router,
            self.reports,  # type: ignore[arg-type]
            lambda _session, _preload: NoProcesses(),  # type: ignore[arg-type, return-value]
            lambda: None,
        )
        session = Session(SessionTerms(epoch=epoch, worker_count=1), parts, generation=epoch)
        session.start()
        worker = Worker(self._context, self.router, epoch)
        self._sessions.append(session)
        self._workers.append(worker)
        session.workers.worker_spawned(0, epoch, os.getpid())
        return session, worker

    async def close(self) -> None:
        for session in self._sessions:
            await session.close()
        for worker in self._workers:
            worker.socket.close(0)
        self._context.term()
        self.router.close()


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    made = Stage(tmp_path)
    yield made
    await made.close()


async def test_last_words_of_a_dead_worker_count(stage: Stage) -> None:
    """Its death is told by the zygote before what it had sent has been read from its socket."""
    session, worker = stage.session(1, task_id=1)
    worker.says_hello()
    await worker.has_a_task()
    worker.says(TaskStarted(AttemptKey(1, 1), 100.0))
    await until(lambda: session.state.running == 1)

    session.workers.worker_exited(0, 1, KILLED)
    done = EncodedReport(AttemptKey(1, 1), 100.0, 100.1, b"{}")
    asyncio.get_running_loop().call_later(0.002, worker.says, TasksFinished((done,)))
    await until(lambda: bool(stage.reports.reports))
    assert stage.reports.reports == [done]


async def test_a_start_that_a_worker_cannot_say_is_learnt_and_can_be_ended(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A handler in code in C sends nothing: it counts as running, and hangs if its cancel has no effect."""
    monkeypatch.setattr("mitosis.execution.session.HANG_MARGIN_SECONDS", 0.0)
    session, worker = stage.session(1, task_id=1)
    worker.says_hello()
    await worker.has_a_task()
    key = AttemptKey(1, 1)
    monkeypatch.setattr(NoProcesses, "runs", key)
    await until(lambda: session.state.running == 1)

    killed: list[int] = []
    monkeypatch.setattr(session.workers, "kill", lambda slot, _: killed.append(slot))
    session.state.workers[0].unstarted[key] = session.state.workers[0].begun.pop(key)
    session.state.workers[0].running = None  # as before the look
    stop = StopOrder(task_id=1, attempt=1, grace_seconds=0.0, reason="enough")
    session.handle(StopsOrdered((stop,)))
    await until(lambda: killed == [0])


async def test_what_runs_unsaid_is_ended_as_running_when_it_is_cancelled(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, worker = stage.session(1, task_id=1)
    worker.says_hello()
    await worker.has_a_task()
    monkeypatch.setattr(NoProcesses, "runs", AttemptKey(1, 1))
    stop = StopOrder(task_id=1, attempt=1, grace_seconds=9.0, reason="enough")
    session.handle(StopsOrdered((stop,)))
    assert session.state.cancelled == {AttemptKey(1, 1)}


async def test_what_runs_unsaid_is_learnt_while_the_lease_ends(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else its worker counts as stuck, and is killed after ten seconds."""
    session, worker = stage.session(1, task_id=1)
    worker.says_hello()
    await worker.has_a_task()
    session.handle(
        Renewed(LeaseStanding.ENDING, CancelOrder(kill=False, grace_seconds=1.0, reason="moved"))
    )
    monkeypatch.setattr(NoProcesses, "runs", AttemptKey(1, 1))
    await until(lambda: session.state.running == 1)


async def test_what_a_dead_worker_had_begun_unsaid_is_repeated_once(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, worker = stage.session(1, task_id=1)
    worker.says_hello()
    await worker.has_a_task()
    key = AttemptKey(1, 1)
    monkeypatch.setattr(NoProcesses, "has_begun", frozenset({key}))
    session.workers.worker_exited(0, 1, KILLED)
    await until(lambda: session.state.repeated == {key})


async def test_a_second_session_leaves_the_messages_of_the_first_alone(stage: Stage) -> None:
    first, worker = stage.session(1, task_id=1)
    worker.says_hello()
    await worker.has_a_task()
    second, other = stage.session(2, task_id=2)
    other.says_hello()
    await other.has_a_task()
    done = EncodedReport(AttemptKey(1, 1), 100.0, 100.1, b"{}")
    worker.says(TaskStarted(done.key, 100.0))
    worker.says(TasksFinished((done,)))
    await until(lambda: stage.reports.reports == [done])
    assert (set(first.state.unreported), second.state.finished) == ({done.key}, 0)

    acknowledged = Reported((done.key,), LeaseStanding.ACTIVE)
    stage.reports.subscribers[1](acknowledged)
    assert not first.state.unreported
    await first.close()
    assert list(stage.reports.subscribers) == [2]
