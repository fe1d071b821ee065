"""Which processes count as stopped, and for how long they may be."""

from datetime import timedelta

from mitosis.execution.stopped import TWO_LOOKS, StoppedProcesses

LIMIT = timedelta(seconds=3)


def test_what_is_stopped_for_longer_than_the_limit_is_found() -> None:
    processes = StoppedProcesses(LIMIT, {1}.__contains__)
    assert [processes.look((1, 2)) for _ in range(5)] == [[], [], [], [1], [1]]


def test_what_is_seen_without_a_main_thread_twice_is_found() -> None:
    processes = StoppedProcesses(TWO_LOOKS, {1}.__contains__)
    assert [processes.look((1, 2)) for _ in range(3)] == [[], [1], [1]]


def test_what_was_continued_in_between_begins_again() -> None:
    """So do the other processes of a host that was stopped as a whole: no look finds them stopped."""
    now_stopped = {1}
    processes = StoppedProcesses(LIMIT, lambda pid: pid in now_stopped)
    for _ in range(3):
        assert processes.look((1,)) == []
    now_stopped.clear()
    assert processes.look((1,)) == []
    now_stopped.add(1)
    assert [processes.look((1,)) for _ in range(4)] == [[], [], [], [1]]


def test_a_process_without_a_task_is_not_counted() -> None:
    processes = StoppedProcesses(LIMIT, {1}.__contains__)
    for _ in range(3):
        processes.look((1,))
    assert processes.look(()) == []
    assert processes.look((1,)) == []
