"""Threads that are made at the start are enough, also on a host that has no process to spare any more."""

import asyncio
import threading

import pytest

from mitosis.execution.threads import started_threads


def refuse(thread: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


async def test_work_goes_to_threads_that_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    asyncio.get_running_loop().set_default_executor(started_threads(2))
    both = threading.Barrier(2)
    with monkeypatch.context() as full:
        full.setattr(threading.Thread, "start", refuse)
        calls = [asyncio.to_thread(both.wait, 10) for _ in range(2)]
        assert sorted(await asyncio.gather(*calls)) == [0, 1]


def test_threads_that_cannot_be_made_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    start = threading.Thread.start
    made: list[threading.Thread] = []

    def one_only(thread: threading.Thread) -> None:
        if made:
            refuse(thread)
        made.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", one_only)
    with pytest.raises(RuntimeError, match="new thread"):
        started_threads(2)
