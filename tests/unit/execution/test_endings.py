"""How a lease session ends, is superseded or fenced: each event's whole list of instructions."""

import pytest

from mitosis.contracts.attempt import AttemptKey
from mitosis.contracts.control import LeaseEnd
from mitosis.contracts.lifecycle import WorkerState
from mitosis.contracts.outcome import ExitKind, ExitReason
from mitosis.contracts.wire import CancelOrder, LeaseStanding
from mitosis.execution.endings import SUPERSEDED
from mitosis.execution.events import (
    AbandonClaim,
    Begin,
    CancelRunning,
    ClaimAbandoned,
    Dismiss,
    Fenced,
    Hold,
    Kill,
    Renewed,
    RenewNow,
    Report,
    RespawnDue,
    SessionOver,
    Stop,
    Superseded,
    WorkerHangs,
    WorkerReady,
)
from tests.support.reports import decoded
from tests.unit.execution.test_reactor import Session, report, send

ENDING, GONE = LeaseStanding.ENDING, LeaseStanding.GONE
KILLED = ExitReason(ExitKind.SIGNAL, 9)
KILL_ORDER = CancelOrder(kill=True, grace_seconds=3.0, reason="cancelled")
FINISH_ORDER = CancelOrder(kill=False, grace_seconds=0.0, reason="complete")


# --- endings ----------------------------------------------------------------------------------------


def test_an_ending_returns_what_waits_and_asks_what_to_do_with_the_rest() -> None:
    session = Session(prefetch=2)
    session.begin()
    session.claimed(10, 11, 12)
    session.began(10)
    assert session(Renewed(ENDING)) == [RenewNow(), Dismiss(0, 0)]
    assert session.state.returned == {AttemptKey(11, 1), AttemptKey(12, 1)}
    assert session(Renewed(ENDING, FINISH_ORDER, frozenset(session.state.returned))) == []
    assert session.ended(10) == [Report((report(10),), urgent=True)]
    assert session.died(reason=ExitReason(ExitKind.SUCCESS, 0)) == []
    assert session.reported(10, standing=ENDING) == [SessionOver(LeaseEnd.ENDING)]


@pytest.mark.spec("S000-27")
def test_an_ending_that_kills_cancels_each_running_task_once() -> None:
    session = Session(workers=2, prefetch=0)
    session.begin()
    session.claimed(10, 11)
    session.began(10, slot=0)
    session.began(11, slot=1)
    assert session(Renewed(ENDING, KILL_ORDER)) == [
        Dismiss(0, 0),
        Dismiss(1, 0),
        CancelRunning(0, 0, AttemptKey(10, 1), 3.0, "cancelled"),
        CancelRunning(1, 0, AttemptKey(11, 1), 3.0, "cancelled"),
    ]
    assert session(Renewed(ENDING, KILL_ORDER)) == []


def test_finish_may_become_kill_but_not_back() -> None:
    session = Session(prefetch=0)
    session.begin()
    session.claimed(10)
    session.began(10)
    assert session(Renewed(ENDING, FINISH_ORDER)) == [Dismiss(0, 0)]
    assert session(Renewed(ENDING, KILL_ORDER)) == [
        CancelRunning(0, 0, AttemptKey(10, 1), 3.0, "cancelled")
    ]


def test_a_task_that_begins_after_the_order_to_kill_is_cancelled_too() -> None:
    session = Session(prefetch=0)
    session.begin()
    session.claimed(10)
    assert session(Renewed(ENDING, KILL_ORDER)) == [Dismiss(0, 0)]
    assert session.began(10) == [CancelRunning(0, 0, AttemptKey(10, 1), 3.0, "cancelled")]


def test_a_worker_that_dies_under_a_cancelled_task_reports_it_cancelled() -> None:
    session = Session(prefetch=0)
    session.begin()
    session.claimed(10)
    session.began(10)
    session(Renewed(ENDING, KILL_ORDER))
    session(WorkerHangs(0, 0, AttemptKey(10, 1), "hung"))
    (said,) = [i for i in session.died(reason=KILLED) if isinstance(i, Report)]
    assert (decoded(said.reports[0]).outcome, decoded(said.reports[0]).kind) == (
        "cancelled",
        "cancelled",
    )


@pytest.mark.spec("S000-139", "S000-147")
def test_under_a_lost_lease_nothing_is_returned() -> None:
    session = Session(prefetch=2)
    session.begin()
    session.claimed(10, 11, 12)
    session.began(10)
    assert session(Renewed(GONE)) == [Dismiss(0, 0), RenewNow()]
    assert session.state.returned == set()
    assert session.state.held == {AttemptKey(10, 1)}


def test_a_superseded_attempt_is_stopped_once_and_with_grace() -> None:
    session = Session(workers=2, prefetch=0)
    session.begin()
    session.claimed(10, 11)
    session.began(10)
    session.began(11, slot=1)
    session(Renewed(GONE))
    event = Superseded(frozenset({AttemptKey(10, 1), AttemptKey(12, 1)}), 4.0)
    assert session(event) == [CancelRunning(0, 0, AttemptKey(10, 1), 4.0, SUPERSEDED)]
    assert session(event) == []


def test_a_claim_in_flight_is_given_up_at_an_ending() -> None:
    session = Session()
    session.begin()
    assert session(Renewed(ENDING, FINISH_ORDER)) == [AbandonClaim(), Dismiss(0, 0)]
    session.died(reason=ExitReason(ExitKind.SUCCESS, 0))
    assert session(ClaimAbandoned(1)) == [SessionOver(LeaseEnd.ENDING)]


def test_an_answer_that_comes_after_the_ending_is_returned_unstarted() -> None:
    session = Session()
    session.begin()
    session(Renewed(ENDING, FINISH_ORDER))
    assert session.claimed(10, 11) == [RenewNow()]
    assert session.state.returned == {AttemptKey(10, 1), AttemptKey(11, 1)}


def test_tasks_that_a_dismissed_worker_dropped_are_returned() -> None:
    session = Session(prefetch=10)
    session.begin()
    session.state.mean_seconds = 0.005
    session.claimed(10, 11)
    session.began(10)
    session(Renewed(ENDING, FINISH_ORDER))
    session.ended(10)
    assert session.died(reason=ExitReason(ExitKind.SUCCESS, 0)) == [RenewNow()]
    assert session.state.returned == {AttemptKey(11, 1)}


@pytest.mark.spec("S000-148")
def test_a_worker_that_becomes_ready_too_late_is_dismissed() -> None:
    session = Session(workers=2)
    session(Begin())
    session(WorkerReady(0, 0))
    session(Renewed(ENDING, FINISH_ORDER))
    assert session(WorkerReady(1, 0)) == [Dismiss(1, 0)]


def test_a_dead_worker_is_not_respawned_in_a_session_that_ends() -> None:
    session = Session(workers=2)
    session.begin()
    session.died(slot=0)
    session.died(slot=0, generation=1)
    session(Renewed(ENDING, FINISH_ORDER))
    assert session(RespawnDue(0, 2)) == []
    assert session.state.workers[0].phase is WorkerState.EXITED


def test_a_forced_stop_reports_nothing_of_what_it_kills() -> None:
    session = Session(prefetch=0)
    session.begin()
    session.claimed(10)
    session.began(10)
    assert session(Stop()) == [Dismiss(0, 0)]
    assert session(Stop(kill=True)) == [Dismiss(0, 0, graceful=False)]
    assert session.died(reason=ExitReason(ExitKind.SUCCESS, 0)) == [SessionOver(LeaseEnd.STOPPING)]


def test_a_session_that_ends_before_its_workers_start_is_over() -> None:
    session = Session()
    assert session(Renewed(GONE)) == [SessionOver(LeaseEnd.GONE)]
    assert session(Begin()) == []


# --- fence ------------------------------------------------------------------------------------------


def test_a_fenced_host_starts_nothing_and_goes_on_when_it_is_heard_again() -> None:
    session = Session(prefetch=2)
    session.begin()
    session.claimed(10, 11)
    session.began(10)
    assert session(Fenced(on=True)) == [Hold(0, 0, on=True)]
    assert session(Fenced(on=True)) == []
    assert session.ended(10) == [Report((report(10),))]
    assert session.reported(10) == []
    assert session(Fenced(on=False)) == [Hold(0, 0, on=False), send(0, 11)]


def test_a_fence_that_kills_drops_everything_unreported() -> None:
    session = Session(prefetch=2, fence=True)
    session.begin()
    session.claimed(10, 11)
    session.began(10)
    out = session(Fenced(on=True))
    assert Kill(0, 0) in out
    session(ClaimAbandoned(session.state.claim_seq))
    assert session.died(reason=KILLED) == [SessionOver(LeaseEnd.GONE)]
    assert session.state.unreported == {}
