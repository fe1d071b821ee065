"""Orders to stop single tasks, wherever their attempts are on the host."""

from mitosis.contracts.attempt import AttemptKey
from mitosis.contracts.wire import StopOrder
from mitosis.execution.events import CancelRunning, Renewed, StopsOrdered
from tests.unit.execution.test_endings import ENDING, FINISH_ORDER
from tests.unit.execution.test_reactor import Session


def stop(task_id: int, grace: float = 2.0) -> StopOrder:
    return StopOrder(task_id=task_id, attempt=1, grace_seconds=grace, reason="enough")


def test_a_cancelled_task_is_stopped_wherever_it_is() -> None:
    session = Session(workers=2, prefetch=10)
    session.begin()
    session.state.mean_seconds = 0.009
    session.claimed(*range(10, 17))  # two for each worker, the rest waits here
    session.began(10)
    in_worker = next(iter(session.state.workers[1].unstarted))
    waiting = session.state.ready[0].key
    event = StopsOrdered((stop(10), stop(in_worker.task_id), stop(waiting.task_id), stop(99)))
    out = session(event)
    assert out[:2] == [
        CancelRunning(0, 0, AttemptKey(10, 1), 2.0, "enough"),
        CancelRunning(1, 0, in_worker, 2.0, "enough"),
    ]
    assert session.state.returned == {waiting}
    assert waiting not in session.state.held
    again = session(event)
    assert CancelRunning(0, 0, AttemptKey(10, 1), 2.0, "enough") not in again, "once"
    session.ended(10)
    assert AttemptKey(10, 1) in session.state.unreported


def test_a_stop_is_obeyed_while_the_lease_ends() -> None:
    session = Session(prefetch=0)
    session.begin()
    session.claimed(10)
    session.began(10)
    session(Renewed(ENDING, FINISH_ORDER))
    assert session(StopsOrdered((stop(10, 0.0),))) == [
        CancelRunning(0, 0, AttemptKey(10, 1), 0.0, "enough")
    ]
