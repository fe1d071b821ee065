"""Claimed tasks that no worker begins do not wait while a worker or another host is free."""

import pytest

from mitosis.contracts.attempt import AttemptKey
from mitosis.execution.events import (
    Claim,
    Kill,
    Looked,
    Recall,
    RenewNow,
    Send,
    TasksTakenBack,
    Withdraw,
    Withdrawn,
)
from mitosis.execution.unstarted import SILENT_LOOKS
from tests.support.simulated_hosts import World
from tests.unit.execution.test_reactor import Session, send, task

LONG, SHORT = 60.0, 0.001
HOST_SECONDS = 1.3
"""So long a host keeps what it does not begin: five looks, and some messages."""


@pytest.mark.spec("S000-31")
@pytest.mark.parametrize("workers", [1, 2])
def test_what_waits_behind_one_long_task_is_begun_after_one_claim(workers: int) -> None:
    world = World([SHORT] * 400 + [LONG] + [SHORT] * 400)
    for phase in (0.0, 0.1):
        world.host(workers, None, phase)
    world.run()
    assert world.longest_wait <= HOST_SECONDS


@pytest.mark.parametrize("seconds", [SHORT, 0.005, 0.02, 0.2, 0.45])
@pytest.mark.parametrize("workers", [1, 4])
def test_tasks_that_move_cost_no_renewal_and_no_recall(seconds: float, workers: int) -> None:
    world = World([seconds] * int(min(400, 20 * workers / seconds**0.5)))
    host = world.host(workers, None, 0.1)
    world.run()
    assert host.renewals == 0
    assert all(not worker.recalled for worker in host.state.workers)


def test_long_tasks_are_returned_once_and_then_not_claimed_before_a_worker_is_free() -> None:
    world = World([5.0] * 12)
    host = world.host(2, None, 0.1)
    world.run()
    assert host.renewals == 1  # what the first claim took too many, before anything was measured


def test_tasks_behind_a_long_one_move_to_a_free_worker() -> None:
    session = Session(workers=2)
    session.begin()
    session.state.mean_seconds = SHORT / 2
    session.claimed(*range(10, 14))  # 10 and 12 to one worker, 11 and 13 to the other
    session.began(10)
    session.began(11, slot=1)
    session.began(13, slot=1)
    session.ended(11, 13, slot=1, seconds=SHORT / 2)
    assert [look(session) for _ in range(3)] == [[], [], [Recall(0, 0)]]
    assert look(session) == []  # asked once
    taken = session(TasksTakenBack(0, 0, (AttemptKey(12, 1),)))
    assert taken == [send(1, 12)]
    session.began(12, slot=1)
    session.ended(12, slot=1, seconds=SHORT / 2)
    assert session.state.workers[0].load == 1


def test_what_a_worker_has_begun_in_the_end_is_not_withdrawn() -> None:
    """Nor what it answers in time; and it is sent nothing before it has answered."""
    session = Session(workers=2)
    session.begin()
    session.state.mean_seconds = SHORT / 2
    session.claimed(*range(10, 14))
    session.began(10)
    session.began(11, slot=1)
    session.began(13, slot=1)
    session.ended(11, 13, slot=1, seconds=SHORT / 2)
    out = [look(session) for _ in range(5)]
    assert out == [[], [], [Recall(0, 0)], [], [Withdraw(0, 0)]]
    assert session(Withdrawn(0, 0, AttemptKey(12, 1))) == []
    assert session(Withdrawn(0, 0, None)) == []
    assert session(Withdrawn(0, 0, AttemptKey(10, 1))) == [send(1, 12)]
    session.ended(10, seconds=SHORT / 2)
    sent = [one for one in session.claimed(14, 15, 16) if isinstance(one, Send)]
    assert {one.slot for one in sent} == {1}
    assert session.state.workers[0].recalled
    session(TasksTakenBack(0, 0, (AttemptKey(12, 1),)))
    assert not session.state.workers[0].recalled
    assert AttemptKey(12, 1) in session.state.workers[1].unstarted


def test_a_worker_that_neither_begins_nor_answers_is_killed() -> None:
    session = Session(workers=1)
    session.begin()
    session.claimed(10)
    out = [look(session) for _ in range(SILENT_LOOKS + 1)]
    assert [Recall(0, 0)] in out[:4]
    assert out[-1] == [Kill(0, 0)]


def test_nothing_is_returned_while_the_api_cannot_be_reached() -> None:
    session = Session(workers=1, prefetch=2)
    session.begin()
    session.claimed(10, 11, 12)
    session.began(10)
    for _ in range(10):
        assert session(Looked(in_contact=False)) == []
    assert session.ended(10)[1] == send(0, 11)  # it works on what it has
    for _ in range(10):
        session(Looked(in_contact=False))
    assert session(Looked(in_contact=True)) == [RenewNow()]
    assert session.state.returned == {AttemptKey(12, 1)}


def test_what_a_stalled_host_claims_late_goes_back_and_is_not_claimed_again() -> None:
    """Its claim was waiting already when the task came."""
    session = Session(workers=1)
    session.begin()
    session.claimed(10)
    session.began(10)
    for _ in range(6):
        look(session)
    session.state.claiming, session.state.claim_seq = True, session.state.claim_seq + 1
    assert session.claimed(11) == []
    assert look(session) == [RenewNow()]
    assert not session.state.claiming
    freed = session.ended(10)
    assert [i.max_tasks for i in freed if isinstance(i, Claim)] == [1]
    assert not [i for i in freed if isinstance(i, Send)]


def look(session: Session) -> list[object]:
    return [i for i in session(Looked(in_contact=True)) if not isinstance(i, Claim)]


def test_tasks_are_recalled_in_order() -> None:
    session = Session(workers=1, prefetch=20)
    session.begin()
    session.state.mean_seconds = 0.0025  # eight for a worker
    session.claimed(*range(10, 20))
    session.began(10)
    for _ in range(3):
        look(session)
    session(TasksTakenBack(0, 0, tuple(AttemptKey(n, 1) for n in range(11, 18))))
    assert list(session.state.ready) == [task(n) for n in range(11, 20)]


def test_after_an_empty_answer_a_host_asks_for_no_more_than_it_has_seen_end() -> None:
    """The tasks that come next may be of another kind than those that were measured."""
    session = Session(workers=1)
    session.begin()
    session.state.mean_seconds = SHORT / 2
    (claim,) = session.claimed()
    assert claim == Claim(2, 1, 1, max_late=1)
    assert session.claimed(10) == [send(0, 10)]
    session.began(10)
    claims = [i for i in session.ended(10, seconds=SHORT / 2) if isinstance(i, Claim)]
    assert claims == [Claim(3, 2, 2 + 2, max_late=1)]  # two in the worker, and two in advance
