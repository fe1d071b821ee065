"""The decisions of a lease session: an event changes the state and gives instructions.

No clock, no socket, no randomness: every fact is in the event. ``session.py`` carries the instructions
out and turns what happens into events.
"""

import heapq
import math
from collections.abc import Iterable

from mitosis.contracts.attempt import AttemptKey
from mitosis.contracts.control import LeaseEnd
from mitosis.contracts.lifecycle import WORKER, WorkerEvent, WorkerState
from mitosis.contracts.wire import ClaimedTask
from mitosis.execution import exits
from mitosis.execution.careful_starts import (
    kept_free,
    on_announced,
    send,
    start_alone,
    start_announced,
)
from mitosis.execution.endings import (
    cancel,
    dismiss,
    on_fenced,
    on_standing,
    on_stop,
    on_stops_ordered,
    on_superseded,
    return_unstarted,
)
from mitosis.execution.events import (
    Announced,
    Begin,
    Claim,
    ClaimAbandoned,
    Claimed,
    Event,
    Fenced,
    Hold,
    Instruction,
    Kill,
    Looked,
    Paused,
    PoolLost,
    Renewed,
    Report,
    Reported,
    RespawnDue,
    SessionOver,
    Spawn,
    SpawnLater,
    Stop,
    StopsOrdered,
    Superseded,
    TaskBegan,
    TaskNotBegun,
    TasksEnded,
    TasksTakenBack,
    Withdrawn,
    WorkerExited,
    WorkerHangs,
    WorkerReady,
)
from mitosis.execution.starved import on_not_begun, on_paused
from mitosis.execution.state import State, Task, Worker
from mitosis.execution.unstarted import on_looked, withdrawn
from mitosis.ipc.messages import EncodedReport
from mitosis.retry_policy import RetryPolicy

MAX_SURPLUS = 256
PREFETCH_SECONDS = 0.25
"""Work to hold beyond what the workers have: enough to hide the time of a claim, no more."""
AHEAD = 2
"""Number of tasks to hold in advance for each that has ended since the queue was last empty."""
LONG_SECONDS = 0.75
"""Tasks that take longer do not wait on a host whose workers are all busy."""
MEAN_WEIGHT = 0.2
RESPAWNS = RetryPolicy(first_seconds=0.05, longest_seconds=5.0, jitter=0.0)


def step(state: State, event: Event) -> list[Instruction]:
    """Change ``state`` by ``event``; return the instructions to carry out, in this order."""
    if state.over:
        return []
    out = _handle(state, event)
    if state.starved is not None:
        out += return_unstarted(state)
    else:
        out += _dispatch(state)
        out += _refill(state)
    out += _finish(state)
    return out


def _handle(state: State, event: Event) -> list[Instruction]:  # noqa: C901, PLR0911, PLR0912 - one line per event
    match event:
        case Begin():
            return _on_begin(state)
        case PoolLost():
            state.pool_lost = True
            return []
        case Paused():
            return on_paused(state, event)
        case WorkerReady():
            return _on_ready(state, event)
        case WorkerExited():
            return _on_exited(state, event)
        case RespawnDue():
            return _on_respawn_due(state, event)
        case TaskBegan():
            return _on_began(state, event)
        case TasksEnded():
            return _on_ended(state, event)
        case TaskNotBegun():
            return _on_not_begun(state, event)
        case TasksTakenBack():
            return _on_taken_back(state, event)
        case Withdrawn():
            worker = _worker(state, event.slot, event.generation)
            return _put_back(state, withdrawn(worker, event)) if worker is not None else []
        case Looked():
            return on_looked(state, event)
        case WorkerHangs():
            return _on_hangs(state, event)
        case Claimed():
            return _on_claimed(state, event)
        case ClaimAbandoned():
            if event.claim_seq == state.claim_seq and state.claiming:
                state.claiming = False
                state.claim_seq -= 1  # never acknowledged: the next claim uses the number again
            return []
        case Reported():
            for key in event.keys:
                state.unreported.pop(key, None)
                state.held.discard(key)
            return on_standing(state, event.standing, None)
        case Renewed():
            state.returned -= event.returned
            return on_standing(state, event.standing, event.order)
        case Superseded():
            return on_superseded(state, event)
        case StopsOrdered():
            return on_stops_ordered(state, event)
        case Announced():
            return on_announced(state, event)
        case Fenced():
            return on_fenced(state, event.on)
        case Stop():
            return on_stop(state, event)


# --- workers ----------------------------------------------------------------------------------------


def _worker(state: State, slot: int, generation: int) -> Worker | None:
    """Return the worker; None if the event is about an earlier process of its slot."""
    worker = state.workers[slot]
    return worker if worker.generation == generation and worker.alive else None


def _on_begin(state: State) -> list[Instruction]:
    state.pool_lost = False
    if not state.active:
        return []
    for worker in state.workers:
        worker.phase = WorkerState.STARTING
    return [Spawn(worker.slot, worker.generation) for worker in state.workers]


def _on_ready(state: State, event: WorkerReady) -> list[Instruction]:
    worker = _worker(state, event.slot, event.generation)
    if worker is None or worker.phase is not WorkerState.STARTING:
        return []
    worker.phase = WORKER.after(worker.phase, WorkerEvent.HELLO)
    worker.failed_starts = 0
    if not state.active:
        return [dismiss(worker)]
    return [Hold(worker.slot, worker.generation, on=True)] if state.fenced else []


def _on_began(state: State, event: TaskBegan) -> list[Instruction]:
    worker = _worker(state, event.slot, event.generation)
    begun = _started(worker, event.key, event.at) if worker is not None else 0
    if worker is None or not begun:
        return []
    state.begun += begun
    if state.order is not None and state.order.kill and not state.active:
        return [cancel(state, worker, event.key, state.order)]
    return []


def _started(worker: Worker, key: AttemptKey, at: float) -> int:
    """Mark the attempt as started, so the worker's death counts as a failure; return how many have begun.

    Those sent before it have ended, although their starts were not said: a worker runs its tasks in order.
    0: the worker does not hold the attempt, or its start is known.
    """
    if key not in worker.unstarted:
        return 0
    if worker.running is not None:
        worker.finishing[worker.running] = worker.started_at
    held = list(worker.unstarted)
    earlier = held[: held.index(key)]
    for one in earlier:
        _ended_unsaid(worker, one, at)
    worker.begun[key] = worker.unstarted.pop(key)
    worker.running, worker.started_at = key, at
    return 1 + len(earlier)


def _ended_unsaid(worker: Worker, key: AttemptKey, at: float) -> None:
    """Mark an attempt as ended whose start was not said and whose report is on the way."""
    worker.begun[key] = worker.unstarted.pop(key)
    worker.finishing[key] = at


def _on_ended(state: State, event: TasksEnded) -> list[Instruction]:
    worker = _worker(state, event.slot, event.generation)
    if worker is None:
        return []
    state.begun += sum(report.key in worker.unstarted for report in event.reports)
    reports = [report for report in event.reports if _remove_attempt(worker, report.key)]
    for report in reports:
        if report.started_at is not None and report.finished_at is not None:
            _measure(state, report.finished_at - report.started_at)
    if reports:
        worker.useful, worker.crashes, state.starved = True, 0, None
    _idle_if_empty(worker)
    return _report(state, reports)


def _on_not_begun(state: State, event: TaskNotBegun) -> list[Instruction]:
    worker = _worker(state, event.slot, event.generation)
    if worker is None or not _remove_attempt(worker, event.key):
        return []
    _idle_if_empty(worker)
    return on_not_begun(state, worker, event)


def _on_taken_back(state: State, event: TasksTakenBack) -> list[Instruction]:
    worker = _worker(state, event.slot, event.generation)
    if worker is None:
        return []
    worker.recalled = False
    tasks = [_take_back(state, worker, key) for key in event.keys if key in worker.attempts()]
    _idle_if_empty(worker)
    return _put_back(state, tasks)


def _take_back(state: State, worker: Worker, key: AttemptKey) -> Task:
    """Take out an attempt that has not begun, also if its mark in shared memory was seen."""
    task = worker.unstarted.get(key) or worker.begun[key]
    _remove_attempt(worker, key)
    state.cancelled.discard(key)
    return task


def _idle_if_empty(worker: Worker) -> None:
    if worker.phase is WorkerState.EXECUTING and worker.load == 0 and not worker.finishing:
        worker.phase = WORKER.after(worker.phase, WorkerEvent.FINISH)


def _on_hangs(state: State, event: WorkerHangs) -> list[Instruction]:
    worker = _worker(state, event.slot, event.generation)
    if worker is None or event.key != worker.running:
        return []
    worker.hung, worker.killed_for = event.key, event.why
    return [Kill(worker.slot, worker.generation)]


def _on_exited(state: State, event: WorkerExited) -> list[Instruction]:
    worker = _worker(state, event.slot, event.generation)
    if worker is None:
        return []
    expected = worker.phase is WorkerState.STOPPING
    worker.failed_starts += worker.phase is WorkerState.STARTING
    _learn_ends(worker, event)
    unstarted = [*_ended_unreported(state, worker), *worker.unstarted.values()]
    stopped_too = event.zygote is not None and state.end is LeaseEnd.STOPPING
    """Whether a service manager stops every process of the agent at once: the goodbye requeues, uncharged."""
    reports = [
        exits.lost_attempt(
            key,
            started_at,
            event,
            worker.killed_for if key == worker.hung else None,
            key in state.cancelled,
        )
        for key, started_at in worker.started
        if not (worker.suppress_reports or stopped_too)
    ]
    state.held.difference_update(key for key, _ in worker.started)
    worker.unstarted, worker.announced, worker.running, worker.finishing = {}, None, None, {}
    worker.begun = {}
    state.held.update(report.key for report in reports)
    out = _report(state, reports)
    out += _put_back(state, unstarted)
    worker.phase = WORKER.after(worker.phase, WorkerEvent.EXIT if expected else WorkerEvent.CRASH)
    return out + _after_death(state, worker)


def _learn_ends(worker: Worker, event: WorkerExited) -> None:
    """Learn from shared memory what a dead worker ran at last, and what had ended there before."""
    if event.running is not None and (
        event.running in worker.unstarted or event.running == worker.running
    ):
        _started(worker, event.running, event.at)
        return
    for key in [key for key in worker.unstarted if key in event.begun]:
        _ended_unsaid(worker, key, event.at)
    if worker.running in event.begun and worker.running is not None:
        worker.finishing[worker.running], worker.running = worker.started_at, None


def _ended_unreported(state: State, worker: Worker) -> list[Task]:
    """Take out the attempts that had ended before the running one: they are not to blame for the death.

    Their outcome is lost with the worker, so they run again, one at a time; the second time they count as
    lost. A session that ends returns them.
    """
    if worker.suppress_reports:
        return []
    again = worker.finishing.keys() - state.cancelled - state.repeated
    state.repeated |= again
    tasks = [worker.begun[key] for key in worker.finishing if key in again]
    for task in tasks:
        _remove_attempt(worker, task.key)
    return tasks


def _after_death(state: State, worker: Worker) -> list[Instruction]:
    """Respawn the slot while the session is active; with a growing delay if no process of it works.

    After the end of the zygote the next Begin starts all.
    """
    if not state.active:
        worker.phase = WorkerState.EXITED
        return []
    worker.crashes = 0 if worker.useful else worker.crashes + 1
    worker.useful, worker.hung, worker.killed_for = False, None, None
    worker.head_seen, worker.recalled = None, False
    worker.phase = WorkerState.CRASHED
    worker.generation += 1
    if state.pool_lost:
        return []
    if worker.crashes <= 1:
        return _respawn(worker)
    return [SpawnLater(worker.slot, worker.generation, RESPAWNS.pause(worker.crashes - 2))]


def _on_respawn_due(state: State, event: RespawnDue) -> list[Instruction]:
    worker = state.workers[event.slot]
    due = worker.generation == event.generation and worker.phase is WorkerState.CRASHED
    return _respawn(worker) if due and not state.pool_lost else []


def _respawn(worker: Worker) -> list[Instruction]:
    worker.phase = WORKER.after(worker.phase, WorkerEvent.RESPAWN)
    return [Spawn(worker.slot, worker.generation)]


def _remove_attempt(worker: Worker, key: AttemptKey) -> bool:
    """Take the attempt out of the worker; return False if it is not there."""
    worker.begun.pop(key, None)
    if worker.running == key:
        worker.running = None
        return True
    if key in worker.finishing:
        del worker.finishing[key]
        return True
    return worker.unstarted.pop(key, None) is not None


# --- tasks in and out -------------------------------------------------------------------------------


def _on_claimed(state: State, event: Claimed) -> list[Instruction]:
    if event.claim_seq != state.claim_seq or not state.claiming:
        return []
    state.claiming = False
    state.acked_seq = event.claim_seq
    state.dry = len(event.tasks) < state.asked
    if state.dry:
        state.trust = 0
    new = [_task(claimed, state) for claimed in event.tasks]
    new = [task for task in new if task.key not in state.held]
    state.held.update(task.key for task in new)
    for task in new:
        state.queue_of(task).append(task)
    out = on_standing(state, event.standing, None)
    return out if state.active else out + return_unstarted(state)


def _report(state: State, reports: list[EncodedReport]) -> list[Instruction]:
    if not reports:
        return []
    for report in reports:
        state.unreported[report.key] = report
        state.cancelled.discard(report.key)
        state.repeated.discard(report.key)
        if report.key == state.alone_running:
            state.alone_running = None
    state.finished += len(reports)
    return [Report(tuple(reports), urgent=len(state.held) == len(state.unreported))]


def _put_back(state: State, tasks: Iterable[Task]) -> list[Instruction]:
    """Put unstarted tasks of a dead or dismissed worker first in the queue, or return them."""
    for task in reversed(list(tasks)):
        if task.key == state.alone_running:
            state.alone_running = None
        state.queue_of(task).appendleft(task)
    return [] if state.active else return_unstarted(state)


def _dispatch(state: State) -> list[Instruction]:
    """Fill the workers up to their credit, the least loaded first."""
    if not state.active or state.fenced:
        return []
    if state.alone or state.alone_running is not None:
        return start_alone(state)
    out = start_announced(state)
    if not state.ready:
        return out
    with_room = kept_free(state, [worker for worker in state.workers if _room(state, worker)])
    sent: dict[int, list[Task]] = {}
    loads = sorted((worker.load, place) for place, worker in enumerate(with_room))  # a heap
    while state.ready and loads and loads[0][0] < state.credit:
        load, place = loads[0]
        worker = with_room[place]
        if load and not worker.fits(state.ready[0]):
            break
        heapq.heapreplace(loads, (load + 1, place))
        task = state.ready.popleft()
        worker.unstarted[task.key] = task
        sent.setdefault(worker.slot, []).append(task)
    return out + [send(state.workers[slot], tasks) for slot, tasks in sent.items()]


def _room(state: State, worker: Worker) -> int:
    """Return how many more tasks the worker may hold."""
    if not worker.available or worker.held_up or worker.recalled or worker.announced is not None:
        return 0
    return max(0, state.credit - worker.load)


def _refill(state: State) -> list[Instruction]:
    """Claim when the queue is down to half of its target; one claim at a time."""
    idle = not state.active or state.fenced or state.claiming
    if idle or state.alone or state.alone_running is not None:
        return []
    available = sum(worker.available for worker in state.workers)
    surplus = 0 if state.stalled or state.given_back else _surplus(state, available)
    room = sum(_room(state, worker) for worker in state.workers)
    waiting = len(state.ready) + len(state.to_announce)
    want = min(MAX_SURPLUS, room + surplus - waiting)
    hungry = sum(worker.available and worker.load == 0 for worker in state.workers)
    if not available or want < 1 or waiting > surplus // 2 or (state.dry and not hungry):
        return []
    state.claiming = True
    state.claim_seq += 1
    state.asked = want
    return [Claim(state.claim_seq, state.acked_seq, want, hungry)]


def _surplus(state: State, workers: int) -> int:
    """Return how many tasks to hold beyond what the workers have; none for one that would wait long."""
    if state.prefetch is not None:
        return state.prefetch
    if state.mean_seconds is None:
        return workers
    mean = max(state.mean_seconds, 1e-4)
    begun = workers * PREFETCH_SECONDS / mean
    most = MAX_SURPLUS if state.trust is None else min(MAX_SURPLUS, AHEAD * state.trust)
    return min(most, int(begun) if mean > LONG_SECONDS else math.ceil(begun))


def _measure(state: State, seconds: float) -> None:
    seconds = max(0.0, seconds)
    if state.trust is not None:
        state.trust += 1
    mean = state.mean_seconds
    state.mean_seconds = seconds if mean is None else mean + MEAN_WEIGHT * (seconds - mean)


def _task(claimed: ClaimedTask, state: State) -> Task:
    key = AttemptKey(claimed.task_id, claimed.attempt)
    look = state.given_back.get(claimed.task_id, state.looks)
    return Task(key, bytes(claimed.spec), claimed.alone, claimed.announce, look)


def _finish(state: State) -> list[Instruction]:
    """End the session when no worker, no report and no returned task is left."""
    busy = state.claiming or state.held or state.returned
    if state.end is None or busy or any(worker.alive for worker in state.workers):
        return []
    state.over = True
    return [SessionOver(state.end)]
