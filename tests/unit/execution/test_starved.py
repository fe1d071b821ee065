"""A host without processes returns what it has not begun and gives its lease up once it holds nothing."""

from mitosis.contracts.attempt import AttemptKey
from mitosis.contracts.wire import LeaseStanding
from mitosis.execution.events import (
    AbandonClaim,
    Claim,
    ClaimAbandoned,
    Instruction,
    Paused,
    PoolLost,
    Recall,
    Renewed,
    RenewNow,
    Send,
    TaskNotBegun,
    TasksTakenBack,
)
from mitosis.execution.starved import gives_up
from tests.unit.execution.test_reactor import Session

FULL = "no process"


def key(number: int) -> AttemptKey:
    return AttemptKey(number, 1)


def starved(session: Session, task: int) -> list[Instruction]:
    return session(TaskNotBegun(0, 0, key(task), FULL))


def acknowledge(session: Session) -> None:
    if session.state.claiming:
        session(ClaimAbandoned(session.state.claim_seq))
    session(Renewed(LeaseStanding.ACTIVE, None, frozenset(session.state.returned)))


def test_the_task_and_what_waits_go_back_without_a_failure() -> None:
    session = Session(1)
    session.begin()
    session.claimed(1, 2, 3)
    session.began(1)
    out = starved(session, 1)
    assert RenewNow() in out
    assert not any(isinstance(one, Claim | Send) for one in out)
    assert {key(1)} <= session.state.returned
    if Recall(0, 0) in out:
        session(TasksTakenBack(0, 0, tuple(session.state.workers[0].unstarted)))
    assert session.state.returned == {key(1), key(2), key(3)}
    assert gives_up(session.state) is None, "the returns are not acknowledged"
    acknowledge(session)
    assert gives_up(session.state) == FULL
    assert session.state.finished == 0


def test_a_claim_that_waits_is_given_up_so_that_it_does_not_take_the_task_again() -> None:
    session = Session(1)
    session.begin()
    session.claimed(1)
    session.began(1)
    claiming = session.state.claiming
    assert (AbandonClaim() in starved(session, 1)) == claiming
    assert not session.state.returned.isdisjoint({key(1)})


def test_what_runs_goes_on_and_its_end_lets_the_host_try_again() -> None:
    session = Session(2)
    session.begin()
    session.claimed(1, 2)
    session.began(1, 0)
    session.began(2, 1)
    starved(session, 1)
    acknowledge(session)
    assert gives_up(session.state) is None, "its lease covers what runs"
    out = session.ended(2, slot=1)
    assert any(isinstance(one, Claim) for one in out)
    assert gives_up(session.state) is None


def test_a_lease_that_ends_is_not_given_up() -> None:
    session = Session(1)
    session.begin()
    session.claimed(1)
    session.began(1)
    session(Renewed(LeaseStanding.ENDING))
    starved(session, 1)
    assert key(1) in session.state.returned
    assert gives_up(session.state) is None


def test_a_pause_takes_no_task_and_returns_what_waits_until_it_is_over() -> None:
    session = Session(1)
    session.begin()
    session(PoolLost())
    session.died()
    assert session.state.claiming
    out = session(Paused(FULL))
    assert AbandonClaim() in out
    session.state.workers[0].failed_starts = 3
    session.claimed(1, 2)
    assert session.state.returned == {key(1), key(2)}
    assert session.state.held == set()
    acknowledge(session)
    assert not any(isinstance(one, Claim) for one in session(Paused(None)))
    assert session.state.workers[0].failed_starts == 0
    assert gives_up(session.state) is None
