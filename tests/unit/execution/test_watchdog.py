"""Processes that do not get on are found after their time, others are left alone."""

from mitosis.contracts.attempt import AttemptKey
from mitosis.contracts.lifecycle import WorkerState
from mitosis.execution.state import State
from mitosis.execution.watchdog import EXIT_SECONDS, HELLO_SECONDS, Where, stuck


def slots(state: State, since: dict[int, tuple[Where, float]], now: float) -> list[int]:
    return [worker.slot for worker in stuck(state, since, now)]


def test_a_worker_that_never_says_hello_or_never_exits_is_found() -> None:
    state = State(worker_count=4)
    since: dict[int, tuple[Where, float]] = {}
    phases = (WorkerState.STARTING, WorkerState.STOPPING, WorkerState.IDLE, WorkerState.EXECUTING)
    for worker, phase in zip(state.workers, phases, strict=True):
        worker.phase = phase
    assert slots(state, since, 0.0) == []
    assert slots(state, since, EXIT_SECONDS) == []
    assert slots(state, since, EXIT_SECONDS + 1) == [1]
    assert slots(state, since, HELLO_SECONDS + 1) == [0, 1]


def test_a_new_process_or_a_running_task_begins_the_time_anew() -> None:
    state = State(worker_count=2)
    since: dict[int, tuple[Where, float]] = {}
    for worker in state.workers:
        worker.phase = WorkerState.STOPPING
    slots(state, since, 0.0)
    state.workers[0].generation = 1
    state.workers[1].running = AttemptKey(1, 1)
    assert slots(state, since, 100.0) == []
    state.workers[1].running = None
    assert slots(state, since, 105.0) == []
    assert slots(state, since, 111.0) == [0, 1]
