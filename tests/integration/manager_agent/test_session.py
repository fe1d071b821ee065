"""Moments of a session that real processes reach only now and then, held open here."""

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import zmq

from manager_agent.router import Router
from manager_agent.session import LeaseSession, SessionParts
from mitosis.contracts.allocation import WorkerAllocationPlan
from mitosis.contracts.attempt import AttemptKey
from mitosis.contracts.http import LeaseGrant
from mitosis.contracts.lifecycle import LeaseState
from mitosis.contracts.outcome import ExitKind, ExitReason
from mitosis.contracts.wire import ClaimAnswer, ClaimedTask, ClaimTasks, LeaseStanding
from mitosis.ipc.codec import encode
from mitosis.ipc.messages import EncodedReport, Hello, TasksFinished, TaskStarted
from mitosis.worker.zygote_protocol import Ready
from tests.support.agent_api import command
from tests.support.agents import until

KILLED = ExitReason(ExitKind.SIGNAL, 9)


class OneTask:
    """An API that has one task, and afterwards none."""

    def __init__(self) -> None:
        spec = msgspec.Raw(msgspec.json.encode(command("/bin/true")))
        self.tasks = [ClaimedTask(task_id=1, attempt=1, spec=spec)]

    async def claim(self, request: ClaimTasks) -> ClaimAnswer:
        if not self.tasks:
            await asyncio.Event().wait()
        return ClaimAnswer(standing=LeaseStanding.ACTIVE, tasks=[self.tasks.pop()])


class Reports:
    """Keeps what the session reports."""

    def __init__(self) -> None:
        self.reports: list[EncodedReport] = []
        self.acknowledged: Any = None

    def add(self, epoch: int, reports: Sequence[EncodedReport], urgent: bool) -> None:
        self.reports += reports


class NoProcesses:
    """A pool whose one worker is a socket of this test."""

    async def start(self) -> Ready:
        return Ready(pid=1, forks=True, no_fork_reason=None, import_seconds=0.0)

    def spawn(self, slot: int, generation: int) -> None:
        pass

    async def close(self) -> None:
        pass


async def test_last_words_of_a_dead_worker_count(tmp_path: Path) -> None:
    """Its death is told by the zygote before what it had sent has been read from its socket."""
    router, reports = Router(f"ipc://{tmp_path}/workers"), Reports()
    grant = LeaseGrant(
        epoch=1,
        lease_state=LeaseState.ACTIVE,
        task_group_id=uuid4(),
        task_group_number=1,
        task_group_name="campaign",
        group_name="lab",
        worker_allocation_plan=WorkerAllocationPlan(),
        cancel_grace_seconds=1,
        host_lost_after_seconds=90,
        fence="finish",
    )
    parts: Any = SessionParts(
        OneTask(),  # type: ignore[arg-type]
        router,
        reports,  # type: ignore[arg-type]
        lambda _session, _preload: NoProcesses(),  # type: ignore[arg-type, return-value]
        lambda: None,
    )
    session = LeaseSession(grant, parts)
    session.start()
    context = zmq.Context()
    worker = context.socket(zmq.DEALER)
    worker.setsockopt(zmq.IDENTITY, b"0:0")
    worker.connect(router.endpoint)
    session.worker_spawned(0, 0, os.getpid())
    worker.send(encode(Hello(0, 0, os.getpid(), (0,))))
    await until(lambda: worker.poll(0))
    worker.send(encode(TaskStarted(AttemptKey(1, 1), 100.0)))
    await until(lambda: session.state.running == 1)

    session.worker_exited(0, 0, KILLED)
    done = EncodedReport(AttemptKey(1, 1), 100.0, 100.1, b"{}")
    last_message = encode(TasksFinished((done,)))
    asyncio.get_running_loop().call_later(0.002, worker.send, last_message)
    await until(lambda: bool(reports.reports))
    assert reports.reports == [done]

    await session.close()
    worker.close(0)
    context.term()
    router.close()
