"""A host that has no process for a command: it returns what it has not begun (protocol P7).

Part of the reactor and as pure. The task is charged nothing. What runs goes on, and its end may free a
process. A host that holds nothing more gives its lease up, so that the failure is remembered with a pause.
"""

from mitosis.execution.endings import give_back_attempts, return_unstarted
from mitosis.execution.events import AbandonClaim, Instruction, Paused, Recall, TaskNotBegun
from mitosis.execution.state import State, Worker


def on_not_begun(state: State, worker: Worker, event: TaskNotBegun) -> list[Instruction]:
    """Return a task that has left its worker, and what waits on this host."""
    state.cancelled.discard(event.key)
    if state.alone_running == event.key:
        state.alone_running = None
    out = give_back_attempts(state, {event.key})
    if not state.active:
        return out
    state.starved = event.reason
    if state.claiming:
        out.append(AbandonClaim())
    for each in state.workers:
        if each.available and each.unstarted and not each.recalled and each.announced is None:
            each.recall()
            out.append(Recall(each.slot, each.generation))
    return out + return_unstarted(state)


def on_paused(state: State, event: Paused) -> list[Instruction]:
    """Return what waits and take no task until the pause is over; then starts of workers count from 0."""
    state.starved = event.reason
    if event.reason is None:
        for worker in state.workers:
            worker.failed_starts = 0
        return []
    return [AbandonClaim()] if state.claiming else []


def gives_up(state: State) -> str | None:
    """Return why the lease is to be given up now: nothing is held that its end could repeat."""
    idle = not state.held and not state.returned and not state.claiming
    return state.starved if idle and state.active else None
