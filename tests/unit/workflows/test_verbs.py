"""What a message may carry, and what is left of many: every verb, every wrong field."""

import asyncio

import pytest

from mitosis.contracts.control import Cancel, Close, GroupView, Reopen
from mitosis.contracts.errors import InvalidRequest
from workflows.verbs import MOST_SIGNALS, Verb, VerbQueue, read_verb


def test_a_misspelt_field_gets_its_name_proposed() -> None:
    with pytest.raises(InvalidRequest, match="did you mean grace_seconds"):
        read_verb(Cancel, {"grace_second": 1})


def drained(queue: VerbQueue) -> list[Verb]:
    return [queue.take().verb for _ in range(len(queue))]


def test_only_the_last_of_closes_and_reopens_is_left() -> None:
    queue = VerbQueue()
    for verb in (Close(), Reopen(), Close(), Close(), Reopen(), Cancel(), Cancel()):
        queue.put_signal(verb)
    assert drained(queue) == [Reopen(), Cancel()]


@pytest.mark.parametrize("verbs", [[Close(), Reopen()], [Close(), Cancel()], [Cancel()]], ids=str)
def test_ten_thousand_signals_leave_a_bounded_queue(verbs: list[Verb]) -> None:
    queue = VerbQueue()
    kept = [queue.put_signal(verbs[i % len(verbs)]) for i in range(10_000)]
    assert len(queue) <= MOST_SIGNALS
    assert sum(kept) == 10_000 or len(queue) == MOST_SIGNALS
    drained(queue)
    assert queue.put_signal(Close()), "there is room again"


def test_updates_are_neither_merged_nor_refused_and_keep_their_place() -> None:
    queue = VerbQueue()
    loop = asyncio.new_event_loop()
    answers: list[asyncio.Future[GroupView]] = [loop.create_future() for _ in range(3)]
    queue.put_signal(Close())
    for answer in answers:
        queue.put(Close(), answer)
    queue.put_signal(Close())
    assert [queue.take().answer for _ in range(len(queue))] == [None, *answers, None]
    loop.close()
