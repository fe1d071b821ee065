"""What a worker has begun, read by its zygote and by the next process of the agent."""

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mitosis.contracts.attempt import AttemptKey
from mitosis.execution.pool import Pool
from mitosis.worker.evidence import (
    KEPT,
    Evidence,
    RunningMark,
    begun_attempts,
    begun_by_process,
    forget_begun,
)
from tests.support.examples import examples

keys = st.builds(AttemptKey, st.integers(0, 2**63 - 1), st.integers(0, 2**31 - 1))


@settings(max_examples=examples(12))
@given(begun=st.lists(keys, max_size=3 * KEPT), last_ended=st.booleans())
def test_the_last_starts_are_named_whether_they_have_ended_or_not(
    tmp_path_factory: pytest.TempPathFactory, begun: list[AttemptKey], last_ended: bool
) -> None:
    folder = tmp_path_factory.mktemp("run")
    evidence = Evidence.create(str(folder), 3)
    mark = RunningMark(evidence.mark_fd)
    for key in begun:
        mark.put(key)
    if last_ended:
        mark.clear()
    assert evidence.running() == (begun[-1] if begun and not last_ended else None)
    evidence.close()
    assert begun_attempts(folder) == begun_by_process(folder, 3) == set(begun[-KEPT:])
    Evidence.create(str(folder), 3).close()
    assert begun_by_process(folder, 3) == set(), "the next process has begun nothing"
    assert begun_attempts(folder) == set(begun[-KEPT:])
    forget_begun(folder)
    assert begun_attempts(folder) == set()


@settings(max_examples=examples(12))
@given(st.binary(max_size=400))
def test_a_file_that_a_task_has_written_into_is_read_as_far_as_it_goes(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    folder = tmp_path_factory.mktemp("run")
    (folder / "begun-0").write_bytes(data)
    for key in begun_attempts(folder):
        assert 0 <= key.task_id < 2**63
        assert 0 <= key.attempt < 2**31


@settings(max_examples=examples(12))
@given(size=st.integers(0, 16 * (KEPT + 2)))
def test_a_file_that_a_task_has_cut_says_nothing_and_ends_neither_zygote_nor_agent(
    tmp_path_factory: pytest.TempPathFactory, size: int
) -> None:
    folder = tmp_path_factory.mktemp("run")
    evidence = Evidence.create(str(folder), 3)
    RunningMark(evidence.mark_fd).put(AttemptKey(1, 1))
    whole = os.fstat(evidence.mark_fd).st_size
    os.truncate(folder / "begun-3", min(size, whole))
    running = None if size < 16 else AttemptKey(1, 1)
    assert evidence.running() == running
    pool = pool_of(folder)
    assert pool.running(3) == running
    assert pool.begun(3) == (frozenset() if size < whole else {AttemptKey(1, 1)})
    if size < whole - 16:
        with pytest.raises(OSError, match="cut"):
            pool.withdraw(3)
    evidence.close()


def pool_of(folder: Path) -> Pool:
    """Make a pool that reads the files in this folder and has no processes."""
    command: Any = SimpleNamespace(setup=SimpleNamespace(run_folder=str(folder)))
    pool = Pool.__new__(Pool)
    pool._command = command
    return pool


class Steps:
    """The memory of a mark, which is looked at after each store as if the worker had been killed then."""

    def __init__(self, mark: RunningMark, look: Callable[[], None]) -> None:
        self._cells: Any = mark._cells
        self._look = look

    def __getitem__(self, cell: int) -> int:
        return int(self._cells[cell])

    def __setitem__(self, cell: int, value: int) -> None:
        self._cells[cell] = value
        self._look()


@settings(max_examples=examples(12))
@given(begun=st.lists(st.tuples(keys, st.sampled_from(["end", "take_out"])), max_size=4))
def test_a_kill_at_any_moment_leaves_whole_marks(
    tmp_path_factory: pytest.TempPathFactory, begun: list[tuple[AttemptKey, str]]
) -> None:
    folder = tmp_path_factory.mktemp("run")
    evidence = Evidence.create(str(folder), 0)
    mark = RunningMark(evidence.mark_fd)
    known: set[AttemptKey] = set()

    def look() -> None:
        assert {evidence.running()} - {None} <= known
        assert begun_by_process(folder, 0) <= known
        assert begun_attempts(folder) <= known

    looked: Any = Steps(mark, look)
    mark._cells = looked
    for key, then in begun:
        known.add(key)
        mark.put(key)
        assert evidence.running() == key
        mark.clear() if then == "end" else mark.take_out()
        assert evidence.running() is None
    evidence.close()
