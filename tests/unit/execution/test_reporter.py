"""Reports stay in the journal from the moment they come until they are acknowledged, and no longer."""

import asyncio
import math
import shutil
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mitosis.contracts.attempt import AttemptKey
from mitosis.contracts.errors import ApiUnavailable, MitosisError, Unauthenticated
from mitosis.contracts.wire import (
    LeaseStanding,
    Outcome,
    ReportAnswer,
    ReportStatus,
    TaskReport,
)
from mitosis.execution import journal, reporter
from mitosis.execution.events import Reported
from mitosis.execution.journal import Journal
from mitosis.execution.reporter import Reporter
from mitosis.ipc.messages import EncodedReport
from tests.support.waiting import wait_until_async

decode = msgspec.json.Decoder(TaskReport).decode

COUNT, BURST = 8000, 500
REPORT_BYTES = 88
"""Of one of these in the journal."""


class Api:
    """Acknowledges what it is told: always when it is open, else as many calls as are let."""

    def __init__(self) -> None:
        self.one = asyncio.Semaphore(0)
        self.open = False
        self.acknowledged: set[int] = set()
        self.refuse = 0
        self.error: MitosisError | None = None
        self.broken: set[int] = set()
        """Tasks whose reports are answered by an internal error."""
        self.calls = 0
        self.bodies: list[int] = []

    def let(self, calls: int) -> None:
        for _ in range(calls):
            self.one.release()

    async def report(self, epoch: int, reports: Sequence[bytes]) -> ReportAnswer:
        self.calls += 1
        if not self.open:
            await self.one.acquire()
        if self.refuse:
            self.refuse -= 1
            raise ApiUnavailable("away")
        task_ids = {decode(report).task_id for report in reports}
        if self.error is not None:
            raise self.error
        if task_ids & self.broken:
            raise MitosisError("a defect")
        self.acknowledged |= task_ids
        self.bodies.append(sum(map(len, reports)))
        return ReportAnswer(
            standing=LeaseStanding.ACTIVE, statuses=[ReportStatus.COMMITTED] * len(reports)
        )


class Agent:
    """A reporter with a journal that can be read as the next process would after a kill."""

    def __init__(self, folder: Path) -> None:
        self.api, self.path = Api(), folder / "journal"
        calls: Any = self.api
        self.journal = Journal(self.path)
        self.reporter = Reporter(calls, self.journal)
        self.running = asyncio.create_task(self.reporter.run())

    def ended(self, *task_ids: int) -> None:
        self.reporter.add(7, [_report(n) for n in task_ids], urgent=False)

    def left_by_a_kill(self) -> set[int]:
        copy = self.path.with_suffix(".copy")
        with self.journal._lock:  # not in the middle of a write
            shutil.copyfile(self.path, copy)
        next_process = Journal(copy)
        try:
            return {report.key.task_id for _, report in next_process.take_entries()}
        finally:
            next_process.close()


def _report(task_id: int, detail: bytes = b"{}") -> EncodedReport:
    report = TaskReport(
        task_id=task_id, attempt=1, outcome=Outcome.SUCCEEDED, detail=msgspec.Raw(detail)
    )
    return EncodedReport.of(report)


@asynccontextmanager
async def agent(folder: Path) -> AsyncIterator[Agent]:
    one = Agent(folder)
    try:
        yield one
    finally:
        one.running.cancel()
        await asyncio.wait([one.running])
        one.reporter.close()


async def test_what_has_ended_is_in_the_journal_before_anybody_has_acknowledged_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reporter, "DURABLE_AFTER_SECONDS", 3600)
    async with agent(tmp_path) as it:
        it.ended(1)
        await wait_until_async(lambda: it.left_by_a_kill() == {1})
        it.ended(2, 3)
        await wait_until_async(lambda: it.left_by_a_kill() == {1, 2, 3})
        it.api.let(2)
        await it.reporter.quiet()
        await wait_until_async(lambda: it.left_by_a_kill() == set())
        it.ended(4)
        it.api.let(1)
        await wait_until_async(lambda: it.api.acknowledged == {1, 2, 3, 4})


async def test_a_disk_that_blocks_holds_up_nothing_but_the_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What renews the lease runs in the same event loop."""
    async with agent(tmp_path) as it:
        blocked, freed, write = threading.Event(), threading.Event(), it.journal.write

        def blocking(*given: Any, **more: Any) -> None:
            blocked.set()
            assert freed.wait(5), "nothing else went on meanwhile"
            write(*given, **more)

        monkeypatch.setattr(it.journal, "write", blocking)
        it.ended(1)
        await wait_until_async(blocked.is_set)
        it.api.let(1)
        await asyncio.wait_for(it.reporter.quiet(), 10)
        freed.set()
        assert it.api.acknowledged == {1}


async def test_a_report_that_stays_postponed_does_not_hold_up_others_when_the_disk_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with agent(tmp_path) as it:
        it.api.broken = {1}
        it.api.open = True
        it.ended(1)
        await wait_until_async(lambda: it.left_by_a_kill() == {1})
        blocked, freed, write = threading.Event(), threading.Event(), it.journal.write

        def blocking(*given: Any, **more: Any) -> None:
            blocked.set()
            assert freed.wait(5), "nothing else went on meanwhile"
            write(*given, **more)

        monkeypatch.setattr(it.journal, "write", blocking)
        for number in (2, 3):
            it.ended(number)
            await wait_until_async(lambda: len(it.api.acknowledged) == number - 1)  # noqa: B023 - at once
        freed.set()


async def test_what_is_acknowledged_at_once_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is written some milliseconds later, together with what comes meanwhile."""
    monkeypatch.setattr(reporter, "WRITE_AFTER_SECONDS", 0.2)
    monkeypatch.setattr(reporter, "DURABLE_AFTER_SECONDS", 3600)
    async with agent(tmp_path) as it:
        written: list[int] = []
        write = it.journal.write

        def counting(entries: Sequence[Any], **more: Any) -> None:
            written.append(len(entries))
            write(entries, **more)

        monkeypatch.setattr(it.journal, "write", counting)
        it.api.let(1)
        it.reporter.add(7, [_report(1)], urgent=True)
        await it.reporter.quiet()
        it.ended(2)
        await asyncio.sleep(0)
        it.ended(3)
        await wait_until_async(lambda: it.left_by_a_kill() == {2, 3})
        assert written == [2]
        it.api.open = True
        it.api.let(1)


async def test_a_reporter_that_cannot_write_any_more_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not go on without a journal: what is no fault of the disk ends the agent, and is seen."""
    monkeypatch.setattr(reporter, "DURABLE_AFTER_SECONDS", 3600)
    async with agent(tmp_path) as it:
        tried = threading.Event()

        def broken(*_: object, **__: object) -> None:
            tried.set()
            raise RuntimeError("can't start new thread")

        monkeypatch.setattr(it.journal, "write", broken)
        it.ended(1)
        await wait_until_async(tried.is_set)
        it.api.let(1)
        with pytest.raises(RuntimeError, match="new thread"):
            await asyncio.wait_for(it.running, 10)


async def test_whenever_the_agent_is_killed_nothing_unacknowledged_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bursts, refusals and rewinds: each look is a kill at another moment."""
    monkeypatch.setattr(journal, "REWIND_BYTES", 10_000)
    seen: set[int] = set()

    def written(ended: set[int]) -> bool:
        left = it.left_by_a_kill()
        assert seen - it.api.acknowledged <= left, "it was there, and has not been acknowledged"
        seen.update(left)
        waiting = ended - it.api.acknowledged
        return waiting <= left and len(waiting) <= 2 * BURST

    async with agent(tmp_path) as it:
        it.api.open = True
        for end in range(BURST, COUNT + 1, BURST):
            it.api.refuse = int(end == COUNT // 2)
            it.ended(*range(end - BURST + 1, end + 1))
            ended = set(range(1, end + 1))
            await wait_until_async(partial(written, ended), 20)
        await it.reporter.quiet()
        assert len(it.api.acknowledged) == COUNT
        reached = len(it.path.read_bytes().rstrip(b"\0"))
        assert reached < COUNT * REPORT_BYTES / 2, "it was rewound again and again"
    assert it.left_by_a_kill() == set()


async def test_a_rewind_keeps_what_is_in_flight(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "REWIND_BYTES", 1000)
    async with agent(tmp_path) as it:
        it.ended(*range(200))
        await wait_until_async(lambda: it.api.calls == 1)
        it.ended(*range(200, 210))
        await wait_until_async(lambda: it.left_by_a_kill() == set(range(210)))
        it.api.let(1)
        await wait_until_async(lambda: it.api.calls == 2)
        it.ended(210)
        await wait_until_async(lambda: it.left_by_a_kill() == set(range(200, 211)))
        it.api.let(2)
        await it.reporter.quiet()


async def test_what_waits_at_the_end_is_for_the_next_process(tmp_path: Path) -> None:
    async with agent(tmp_path) as it:
        it.ended(1, 2)
    assert it.left_by_a_kill() == {1, 2}


async def test_a_call_is_bounded_by_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reporter, "LARGEST_BATCH_BYTES", 1000)
    huge = b'{"stdout":"%s"}' % (b"x" * 3000)
    ended = [_report(1), _report(2, huge), *(_report(n) for n in range(3, 40))]
    async with agent(tmp_path) as it:
        it.reporter.add(7, ended, urgent=True)
        it.api.open = True
        await it.reporter.quiet()
    assert it.api.acknowledged == set(range(1, 40))
    assert [size for size in it.api.bodies if size > 1000] == [len(ended[1].report)]
    assert len(it.api.bodies) == 2 + math.ceil(sum(len(r.report) for r in ended[2:]) / 1000)


def left_by_an_earlier_process(folder: Path, *entries: tuple[int, EncodedReport]) -> None:
    earlier = Journal(folder / "journal")
    earlier.write(entries)
    earlier.close()


async def test_a_replay_is_bounded_by_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reporter, "LARGEST_BATCH_BYTES", 1000)
    left_by_an_earlier_process(tmp_path, *((7, _report(n)) for n in range(40)), (8, _report(40)))
    async with agent(tmp_path) as it:
        it.api.open = True
        await it.reporter.replayed()
        assert it.api.acknowledged == set(range(41))
        assert max(it.api.bodies) <= 1000 < sum(it.api.bodies)


async def test_new_reports_are_journalled_behind_those_that_are_replayed(tmp_path: Path) -> None:
    """A kill in the middle of a replay: nothing that waits is missing from the file."""
    left_by_an_earlier_process(tmp_path, (7, _report(1)), (8, _report(2)))
    async with agent(tmp_path) as it:
        it.ended(3)
        await wait_until_async(lambda: it.left_by_a_kill() == {1, 2, 3})
        assert it.reporter.unacknowledged() == [(1, 1), (2, 1), (3, 1)]
        it.api.let(1)
        await wait_until_async(lambda: it.api.acknowledged == {1})
        assert it.reporter.unacknowledged() == [(2, 1), (3, 1)]
    assert it.left_by_a_kill() >= {2, 3}


async def test_an_agent_that_is_refused_for_good_ends_and_keeps_its_journal(tmp_path: Path) -> None:
    left_by_an_earlier_process(tmp_path, (7, _report(1)))
    async with agent(tmp_path) as it:
        it.api.error = Unauthenticated()
        it.api.open = True
        with pytest.raises(Unauthenticated):
            await it.running
        it.ended(2)
    assert it.left_by_a_kill() == {1, 2}


async def test_no_tasks_are_claimed_while_many_bytes_of_reports_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reporter, "MOST_WAITING_BYTES", 3000)
    async with agent(tmp_path) as it:
        await it.reporter.room()
        it.reporter.add(7, [_report(1, b'"%s"' % (b"x" * 3000))], urgent=True)
        waiting = asyncio.ensure_future(it.reporter.room())
        await wait_until_async(lambda: it.api.calls == 1)
        assert not waiting.done()
        it.api.let(1)
        await waiting


async def test_one_report_that_fails_again_and_again_holds_up_nothing_else(tmp_path: Path) -> None:
    """Its session goes on without it; journal and next hello do not forget it."""
    acknowledged: list[AttemptKey] = []
    async with agent(tmp_path) as it:
        it.api.open, it.api.broken = True, {2}
        it.reporter.subscribe(7, lambda event: acknowledged.extend(event.keys))
        it.ended(1, 2, 3)
        await it.reporter.quiet()
        assert it.api.acknowledged == {1, 3}
        assert sorted(acknowledged) == [(1, 1), (2, 1), (3, 1)]
        assert it.reporter.unacknowledged() == [(2, 1)]
        assert "task 2, sent 1 of 20 times: a defect" in str(it.reporter.trouble())
        await wait_until_async(lambda: 2 in it.left_by_a_kill())
    assert 2 in it.left_by_a_kill()


async def test_the_bytes_of_a_report_are_passed_on_as_they_came(tmp_path: Path) -> None:
    """Also in a form that this agent would not have written: the API alone decodes it."""
    odd = b'{ "task_id":1,  "attempt":1, "detail":{"later":true}, "outcome":"succeeded" }'
    async with agent(tmp_path) as it:
        it.api.open = True
        it.reporter.add(7, [EncodedReport(AttemptKey(1, 1), None, None, odd)], urgent=True)
        await it.reporter.quiet()
    assert it.api.bodies == [len(odd)]


async def test_each_epoch_has_one_subscriber(tmp_path: Path) -> None:
    first: list[Reported] = []
    second: list[Reported] = []
    async with agent(tmp_path) as it:
        it.api.open = True
        it.reporter.subscribe(7, first.append)
        it.reporter.subscribe(8, second.append)
        with pytest.raises(RuntimeError, match="epoch 7"):
            it.reporter.subscribe(7, second.append)
        it.reporter.add(7, [_report(1)], urgent=True)
        it.reporter.add(8, [_report(2)], urgent=True)
        await it.reporter.quiet()
        it.reporter.unsubscribe(7)
        it.reporter.add(7, [_report(3)], urgent=True)
        await it.reporter.quiet()
    assert [key for event in first for key in event.keys] == [(1, 1)]
    assert [key for event in second for key in event.keys] == [(2, 1)]
    assert it.api.acknowledged == {1, 2, 3}
