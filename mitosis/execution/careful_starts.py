"""Starts of tasks that may have cost a host (protocol P5, "Who is charged"): announced, or alone.

Part of the reactor and as pure. An announced task gets its place first: a worker with nothing else. Then a
renewal announces it, and it is sent when the answer says that its start is recorded. A task that must run
alone waits until nothing else runs or is announced here, and nothing starts beside it.
"""

from collections import deque

from mitosis.contracts.lifecycle import WORKER, WorkerEvent, WorkerState
from mitosis.execution.endings import give_back
from mitosis.execution.events import Announced, Instruction, RenewNow, Send
from mitosis.execution.state import State, Task, Worker


def send(worker: Worker, tasks: list[Task]) -> Instruction:
    """Send these unstarted tasks to the worker that holds them."""
    if worker.phase is WorkerState.IDLE:
        worker.phase = WORKER.after(worker.phase, WorkerEvent.RUN)
    return Send(worker.slot, worker.generation, tuple(tasks))


def start_alone(state: State) -> list[Instruction]:
    """Start the first task that must run alone if the host is empty; return what waits beside it."""
    out = _return_others(state)
    busy = any(True for worker in state.workers for _ in worker.attempts())
    idle = next((worker for worker in state.workers if worker.available), None)
    if busy or idle is None or not state.alone:
        return out
    task = state.alone.popleft()
    state.alone_running = task.key
    return out + _start(idle, task)


def start_announced(state: State) -> list[Instruction]:
    """Announce waiting tasks, one for each worker that is empty."""
    out: list[Instruction] = []
    for worker in state.workers:
        empty = worker.available and worker.load == 0 and not worker.finishing
        if state.to_announce and empty:
            out += _start(worker, state.to_announce.popleft())
    return [RenewNow()] if out else []


def on_announced(state: State, event: Announced) -> list[Instruction]:
    """Send what is recorded. What is not recorded is returned, in case it is still this host's."""
    out: list[Instruction] = []
    for worker in state.workers:
        if worker.announced not in event.keys or worker.announced is None:
            continue
        task = worker.unstarted[worker.announced]
        if task.key not in event.recorded:
            withdraw(state, worker)
            out += give_back(state, [task])
        elif state.active and not state.fenced:
            worker.announced = None
            out.append(send(worker, [task]))
    return out


def withdraw(state: State, worker: Worker) -> None:
    """Take the announced task from the worker."""
    if worker.announced is not None:
        del worker.unstarted[worker.announced]
        if state.alone_running == worker.announced:
            state.alone_running = None
        worker.announced = None


def kept_free(state: State, workers: list[Worker]) -> list[Worker]:
    """Return the workers that take more tasks: the least loaded ones become empty for announced tasks."""
    if not state.to_announce:
        return workers
    return sorted(workers, key=lambda worker: worker.load)[len(state.to_announce) :]


def _start(worker: Worker, task: Task) -> list[Instruction]:
    worker.unstarted[task.key] = task
    if not task.announce:
        return [send(worker, [task])]
    worker.announced = task.key
    return [RenewNow()]


def _return_others(state: State) -> list[Instruction]:
    """Return what would wait for the task that runs alone; other hosts may take it."""
    kept = 0 if state.alone_running is not None else 1
    others = [*state.ready, *state.to_announce, *list(state.alone)[kept:]]
    state.alone = deque(list(state.alone)[:kept])
    state.ready.clear()
    state.to_announce.clear()
    return give_back(state, others)
