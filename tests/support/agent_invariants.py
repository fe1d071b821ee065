"""What always holds in the state of a lease session."""

from mitosis.execution.state import MOST_CREDIT, State


def check_invariants(state: State) -> None:
    """Raise AssertionError if an attempt is lost, doubled or where it must not be."""
    places = [
        *(task.key for task in state.ready),
        *(task.key for task in state.alone),
        *(task.key for task in state.to_announce),
        *(key for worker in state.workers for key in worker.attempts()),
        *state.unreported,
    ]
    assert len(places) == len(set(places)), "an attempt is in two places"
    assert set(places) == state.held, "held is not what is held"
    assert not state.held & state.returned, "an attempt is held and returned"
    assert state.claim_seq == state.acked_seq + state.claiming, "claims out of step"
    for worker in state.workers:
        assert worker.load <= MOST_CREDIT, "more tasks than credit"
        assert worker.alive or not list(worker.attempts()), "a dead worker holds tasks"
        if worker.announced is not None:
            assert list(worker.attempts()) == [worker.announced], "announced without a place"
    if not state.active:
        waiting = [*state.ready, *state.alone, *state.to_announce]
        assert not waiting, "tasks wait in a session that ends"
    if state.alone_running is not None:
        others = [key for worker in state.workers for key in worker.attempts()]
        assert others == [state.alone_running], "something runs beside a task that must be alone"
