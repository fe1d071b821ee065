"""Claimed tasks that no worker begins: taken back from their worker and returned (protocol P7).

Part of the reactor and as pure. Time is counted in looks, so no clock is read. A task that moves costs
nothing here, however short it is.
"""

from collections import deque

from mitosis.execution.endings import give_back
from mitosis.execution.events import Instruction, Kill, Looked, Recall, Withdraw, Withdrawn
from mitosis.execution.state import HORIZON_LOOKS, State, Task, Worker

LOOK_SECONDS = 0.25
RECALL_LOOKS = 3
"""So old is a task at most that waits in a worker."""
RETURN_LOOKS = 5
"""So old is a task at most that waits on this host."""
WITHDRAW_LOOKS = 2
"""A worker that has not answered a recall by then, since it is in code in C, is not waited for."""
SILENT_LOOKS = 120
"""A worker that neither begins the first task it holds nor answers is killed: after half a minute."""


def on_looked(state: State, event: Looked) -> list[Instruction]:
    """Recall what waits in a worker for too long; return what waits on this host for too long."""
    state.looks += 1
    if state.given_back:
        _forget_given_back(state)
    if not state.active or state.fenced:
        _forget(state)
        return []
    out: list[Instruction] = []
    for worker in state.workers:
        out += _look_at(state, worker)
    state.recent.append(state.begun)
    state.begun = 0
    return out + _return_old(state) if event.in_contact else out


def _forget(state: State) -> None:
    """Count from the next look: nothing begins while workers are paused."""
    state.begun = 0
    state.recent.clear()
    for worker in state.workers:
        worker.head_seen = None


def _forget_given_back(state: State) -> None:
    oldest = state.looks - RETURN_LOOKS - HORIZON_LOOKS
    state.given_back = {task: look for task, look in state.given_back.items() if look > oldest}


def _look_at(state: State, worker: Worker) -> list[Instruction]:
    head = worker.head
    same = head is not None and head == worker.head_seen
    worker.head_seen, worker.head_looks = head, worker.head_looks + 1 if same else 0
    if not worker.available or not worker.unstarted or worker.announced is not None:
        return []
    if worker.running is None and worker.head_looks == SILENT_LOOKS:
        return [Kill(worker.slot, worker.generation)]
    oldest = next(iter(worker.unstarted.values()))
    if worker.recalled:
        worker.recall_looks += 1
        silent = worker.recall_looks == WITHDRAW_LOOKS and worker.running is not None
        return [Withdraw(worker.slot, worker.generation)] if silent else []
    if _age(state, oldest) < RECALL_LOOKS:
        return []
    worker.recall()
    return [Recall(worker.slot, worker.generation)]


def withdrawn(worker: Worker, event: Withdrawn) -> list[Task]:
    """Take what waits in a worker that did not answer, if it still runs what it ran.

    It begins none of it: it reads the withdrawal before each start. Until it answers it is sent nothing, so
    that no task is sent to it twice.
    """
    if not worker.recalled or worker.running is None or event.running != worker.running:
        return []
    tasks = list(worker.unstarted.values())
    worker.unstarted.clear()
    return tasks


def _return_old(state: State) -> list[Instruction]:
    """Return what has waited for too long, and everything if nothing moves.

    While anything moves, a prefetch count that the user has set is kept.
    """
    keep = 0 if state.stalled else state.prefetch or 0
    waiting = list(state.ready)
    old = [t for t in waiting[keep:] if state.stalled or _age(state, t) >= RETURN_LOOKS]
    if not old:
        return []
    going = {task.key for task in old}
    state.ready = deque(task for task in waiting if task.key not in going)
    state.given_back |= {task.key.task_id: task.look for task in old}
    return give_back(state, old)


def _age(state: State, task: Task) -> int:
    return state.looks - task.look
