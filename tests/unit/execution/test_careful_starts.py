"""Announced starts and tasks that run alone: who gets a place, and what may start beside them."""

import msgspec

from mitosis.contracts.attempt import AttemptKey
from mitosis.contracts.outcome import ExitKind, ExitReason
from mitosis.contracts.wire import ClaimedTask, LeaseStanding
from mitosis.execution.events import (
    Announced,
    Begin,
    Claimed,
    Instruction,
    Renewed,
    RenewNow,
    Send,
    TaskBegan,
    TasksEnded,
    WorkerExited,
    WorkerReady,
)
from mitosis.execution.reactor import step
from mitosis.execution.state import State
from mitosis.ipc.messages import EncodedReport
from tests.support.agent_invariants import check_invariants

ACTIVE = LeaseStanding.ACTIVE


class Agent:
    """A session with idle workers and a claim in flight."""

    def __init__(self, workers: int = 2) -> None:
        self.state = State(worker_count=workers, prefetch=8)
        self(Begin())
        for slot in range(workers):
            self(WorkerReady(slot, 0))

    def __call__(self, event: object) -> list[Instruction]:
        out = step(self.state, event)  # type: ignore[arg-type]
        check_invariants(self.state)
        return out

    def claims(self, *tasks: ClaimedTask) -> list[Instruction]:
        """Answer the claim in flight with as many as it asked for."""
        self.state.asked = len(tasks)
        return self(Claimed(self.state.claim_seq, ACTIVE, tasks))

    def recorded(self, *numbers: int, asked: tuple[int, ...] = ()) -> list[Instruction]:
        return self(Announced(keys(*(asked or numbers)), keys(*numbers)))

    def ends(self, number: int, slot: int = 0) -> list[Instruction]:
        self(TaskBegan(slot, 0, key(number), 1.0))
        return self(TasksEnded(slot, 0, (EncodedReport(key(number), 1.0, 2.0, b"{}"),)))


def key(number: int) -> AttemptKey:
    return AttemptKey(number, 1)


def keys(*numbers: int) -> frozenset[AttemptKey]:
    return frozenset(key(number) for number in numbers)


def task(number: int, *, alone: bool = False, announce: bool = False) -> ClaimedTask:
    return ClaimedTask(
        task_id=number, attempt=1, spec=msgspec.Raw(b"{}"), alone=alone, announce=announce
    )


def sent(out: list[Instruction]) -> list[int]:
    return [t.key.task_id for one in out if isinstance(one, Send) for t in one.tasks]


def test_an_announced_task_starts_when_its_start_is_recorded() -> None:
    agent = Agent()
    out = agent.claims(task(1, announce=True), task(2))
    assert RenewNow() in out
    assert sent(out) == [2], "an ordinary task waits for nothing"
    assert agent.state.announced == [key(1)]
    assert sent(agent.recorded(1)) == [1]
    assert agent.state.announced == []


def test_an_announcement_waits_for_a_worker_with_nothing_else() -> None:
    agent = Agent(workers=1)
    agent.claims(task(1))
    assert sent(agent.claims(task(2, announce=True), task(3))) == []
    assert agent.state.announced == [], "no place yet: another death would be charged to it"
    out = agent.ends(1)
    assert agent.state.announced == [key(2)]
    assert sent(out) == [], "nothing goes before it in the worker that it has"
    assert sent(agent.recorded(2)) == [2]


def test_a_start_that_is_not_recorded_is_given_back() -> None:
    agent = Agent()
    agent.claims(task(1, announce=True), task(2, announce=True))
    out = agent.recorded(2, asked=(1, 2))
    assert sent(out) == [2]
    assert agent.state.returned == keys(1)


def test_an_announced_task_whose_worker_dies_is_announced_again() -> None:
    agent = Agent(workers=1)
    agent.claims(task(1, announce=True))
    agent(WorkerExited(0, 0, ExitReason(ExitKind.SIGNAL, 9), False, 1.0))
    assert agent.recorded(1) == [], "it has no place now"
    agent(WorkerReady(0, 1))
    assert agent.state.announced == [key(1)]


def test_a_lease_that_ends_starts_nothing_that_was_announced() -> None:
    agent = Agent(workers=1)
    agent.claims(task(1, announce=True))
    agent(Renewed(LeaseStanding.ENDING))
    assert sent(agent.recorded(1)) == []


def test_a_task_that_runs_alone_waits_and_its_company_is_given_back() -> None:
    agent = Agent()
    agent.claims(task(1))
    out = agent.claims(task(2, alone=True), task(3), task(4, announce=True), task(5, alone=True))
    assert sent(out) == []
    assert agent.state.returned == keys(3, 4, 5), "other hosts may take them"
    assert sent(agent.ends(1)) == [2]
    assert agent.state.alone_running == key(2)


def test_a_task_that_runs_alone_is_announced_when_the_host_is_empty() -> None:
    agent = Agent()
    agent.claims(task(1))
    agent.claims(task(2, alone=True, announce=True))
    assert agent.state.announced == []
    agent.ends(1)
    assert agent.state.announced == [key(2)]
    assert sent(agent.recorded(2)) == [2]
