"""How a lease session ends: by an order of PostgreSQL, a shutdown, a lost lease or the fence.

Part of the reactor and as pure: each function changes the state and returns instructions.
"""

from collections.abc import Iterable

from mitosis.contracts.attempt import AttemptKey
from mitosis.contracts.control import LeaseEnd
from mitosis.contracts.lifecycle import WORKER, WorkerEvent, WorkerState
from mitosis.contracts.wire import CancelOrder, LeaseStanding
from mitosis.execution.events import (
    AbandonClaim,
    CancelRunning,
    Dismiss,
    Hold,
    Instruction,
    Kill,
    RenewNow,
    Stop,
    StopsOrdered,
    Superseded,
)
from mitosis.execution.state import State, Task, Worker

SUPERSEDED = "the task was claimed again or has ended elsewhere"


def on_standing(
    state: State, standing: LeaseStanding, order: CancelOrder | None
) -> list[Instruction]:
    """Act on the standing of the lease. An order may change from finish to kill, never back."""
    if standing is LeaseStanding.ACTIVE:
        return []
    newly = order is not None and order.kill and not (state.order and state.order.kill)
    state.order = order or state.order
    out: list[Instruction] = []
    if standing is LeaseStanding.GONE and state.end is not LeaseEnd.GONE:
        out += _end(state, LeaseEnd.GONE)
        if state.running:
            out.append(RenewNow())  # its answer names the running attempts that no longer count
    elif state.active:
        out += _end(state, LeaseEnd.ENDING)
        if order is None and RenewNow() not in out:
            out.append(RenewNow())  # its answer holds the order for running tasks
    if newly and state.order is not None:
        out += [
            cancel(state, worker, worker.running, state.order)
            for worker in state.workers
            if worker.running is not None
        ]
    return out


def on_superseded(state: State, event: Superseded) -> list[Instruction]:
    """Stop running attempts whose end no longer counts; their reports will change nothing."""
    order = CancelOrder(kill=True, grace_seconds=event.grace_seconds, reason=SUPERSEDED)
    return [
        cancel(state, worker, worker.running, order)
        for worker in state.workers
        if worker.running in event.keys and worker.running not in state.cancelled
    ]


def on_stops_ordered(state: State, event: StopsOrdered) -> list[Instruction]:
    """Stop the attempts of single tasks that a user cancelled, and start none of them.

    A worker that has an attempt decides whether it has begun. One that waits in a queue here is returned. An
    announced one is not recorded any more, so it is returned when that is answered.
    """
    out: list[Instruction] = []
    waiting: set[AttemptKey] = set()
    for one in event.orders:
        key = AttemptKey(one.task_id, one.attempt)
        order = CancelOrder(kill=True, grace_seconds=one.grace_seconds, reason=one.reason)
        worker = next((w for w in state.workers if key == w.running or key in w.unstarted), None)
        if worker is None:
            waiting.add(key)
        elif worker.running == key and key not in state.cancelled:
            out.append(cancel(state, worker, key, order))
        elif key in worker.unstarted and key != worker.announced:
            out.append(
                CancelRunning(worker.slot, worker.generation, key, one.grace_seconds, one.reason)
            )
    return out + _return_waiting(state, waiting)


def _return_waiting(state: State, keys: set[AttemptKey]) -> list[Instruction]:
    """Return those of the attempts that wait for a worker."""
    out: list[Instruction] = []
    for queue in (state.ready, state.alone, state.to_announce):
        found = [task for task in queue if task.key in keys]
        for task in found:
            queue.remove(task)
        out += give_back(state, found)
    return out


def on_stop(state: State, event: Stop) -> list[Instruction]:
    """Shut the session down; tasks of workers that it kills are requeued, not reported."""
    out = _end(state, LeaseEnd.STOPPING) if state.active else []
    if event.kill:
        for worker in state.workers:
            if worker.phase is WorkerState.STOPPING:
                worker.suppress_reports = True
                stop = Dismiss(worker.slot, worker.generation, False, event.grace_seconds)
                out.append(stop)
    return out


def on_fenced(state: State, on: bool) -> list[Instruction]:
    """Pause the workers (P4) or resume them. With ``fence: kill``, kill the running tasks too."""
    if on == state.fenced:
        return []
    state.fenced = on
    if on and state.fence_kills and state.active:
        out = _end(state, LeaseEnd.GONE)
        for worker in state.workers:
            worker.suppress_reports = True
        return out + [Kill(w.slot, w.generation) for w in state.workers if w.alive]
    return [Hold(w.slot, w.generation, on=on) for w in state.workers if w.available]


def _end(state: State, end: LeaseEnd) -> list[Instruction]:
    state.end = end
    out = return_unstarted(state)
    if end is LeaseEnd.GONE:
        state.returned.clear()
    if state.claiming:
        out.append(AbandonClaim())
    for worker in state.workers:
        if worker.available:
            out.append(dismiss(worker))
        elif worker.phase is WorkerState.CRASHED:
            worker.phase = WorkerState.EXITED
    return out


def dismiss(worker: Worker) -> Instruction:
    """Ask a worker to exit after its running task."""
    worker.phase = WORKER.after(worker.phase, WorkerEvent.STOP)
    return Dismiss(worker.slot, worker.generation)


def cancel(state: State, worker: Worker, key: AttemptKey, order: CancelOrder) -> Instruction:
    """Stop a running attempt that a user cancelled; it is reported as cancelled, not failed."""
    state.cancelled.add(key)
    return CancelRunning(worker.slot, worker.generation, key, order.grace_seconds, order.reason)


def return_unstarted(state: State) -> list[Instruction]:
    """Return the unstarted tasks; drop them if the lease is gone."""
    tasks = (*state.ready, *state.alone, *state.to_announce)
    state.ready.clear()
    state.alone.clear()
    state.to_announce.clear()
    return give_back(state, tasks)


def give_back(state: State, tasks: Iterable[Task]) -> list[Instruction]:
    """Return these tasks, which wait nowhere any more; drop them if the lease is gone."""
    return give_back_attempts(state, {task.key for task in tasks})


def give_back_attempts(state: State, keys: set[AttemptKey]) -> list[Instruction]:
    """Return these attempts, as :func:`give_back`."""
    state.held -= keys
    state.repeated -= keys
    if not keys or state.end is LeaseEnd.GONE:
        return []
    state.returned |= keys
    return [RenewNow()]
