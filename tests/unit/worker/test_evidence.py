"""What a worker has begun, read by its zygote and by the next process of the agent."""

from pathlib import Path

from mitosis.contracts.attempt import AttemptKey
from mitosis.worker.evidence import (
    Evidence,
    RunningMark,
    begun_attempts,
    running_attempt,
    withdraw,
)


def test_the_starts_of_an_earlier_worker_of_the_slot_are_kept(tmp_path: Path) -> None:
    first, second = AttemptKey(1, 1), AttemptKey(2, 1)
    for key in (second, first):
        evidence = Evidence.create(str(tmp_path), 0)
        assert evidence.running() is None
        mark = RunningMark(evidence.mark_fd)
        if key is second:
            mark.put(AttemptKey(9, 9))
        mark.put(key)
        evidence.close()
    assert begun_attempts(tmp_path) >= {first, second}


def test_a_withdrawal_is_seen_once_by_the_worker_of_the_slot(tmp_path: Path) -> None:
    first, second = AttemptKey(1, 1), AttemptKey(2, 1)
    evidence = Evidence.create(str(tmp_path), 3)
    mark = RunningMark(evidence.mark_fd)
    mark.put(first)
    assert not mark.withdrawn()
    withdraw(tmp_path, 3)
    assert running_attempt(tmp_path, 3) == first
    mark.put(second)
    assert mark.withdrawn()
    mark.take_out()
    assert not mark.withdrawn()
    assert running_attempt(tmp_path, 3) is None
    assert begun_attempts(tmp_path) == {first}, "the second has not begun"
    assert not RunningMark(evidence.mark_fd).withdrawn(), "nor does it concern the next process"
    evidence.close()
