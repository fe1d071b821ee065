"""Reports that wait alone: the next one due is sent, what stays refused ends, pauses do not pile up."""

import asyncio
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from mitosis.client.problems import error_from
from mitosis.contracts.errors import InvalidRequest, MitosisError
from mitosis.contracts.wire import Outcome, TaskReport
from mitosis.execution.backoff import FOREIGN_REFUSED_TRIES, POSTPONED_TRIES, REFUSED_TRIES
from mitosis.execution.postponed_reports import PostponedReports
from mitosis.ipc.messages import EncodedReport
from tests.support.skipping_loop import run_skipping

DEFECT, REFUSED = MitosisError("a defect"), InvalidRequest("not so")
PROXY = error_from(403, {}, b"")


def report(task_id: int) -> EncodedReport:
    return EncodedReport.of(TaskReport(task_id=task_id, attempt=1, outcome=Outcome.SUCCEEDED))


def kind_of(one: EncodedReport) -> str | None:
    return msgspec.json.decode(one.report, type=TaskReport).kind


class World:
    """Every report fails with its error so many times."""

    def __init__(self, failures: dict[int, tuple[MitosisError, int]]) -> None:
        self.failures = failures
        self.sent: list[tuple[float, int, str | None]] = []

    async def send(self, epoch: int, reports: Sequence[EncodedReport]) -> None:
        (one,) = reports
        task_id = one.key.task_id
        self.sent.append((asyncio.get_running_loop().time(), task_id, kind_of(one)))
        error, left = self.failures[task_id]
        self.failures[task_id] = error, left - 1
        if left > 0:
            self.held.add((epoch, one), error)

    async def __call__(self, *late: tuple[float, int]) -> None:
        changed = asyncio.Event()
        self.held = PostponedReports(self.send, changed.set)
        running = asyncio.create_task(self.held.run())
        began = asyncio.get_running_loop().time()
        for task_id in self.failures.keys() - {later for _, later in late}:
            self.held.add((7, report(task_id)), self.failures[task_id][0])
        for at, task_id in late:
            await asyncio.sleep(began + at - asyncio.get_running_loop().time())
            self.held.add((7, report(task_id)), self.failures[task_id][0])
        while self.held.entries():
            await changed.wait()
            changed.clear()
        running.cancel()


@pytest.mark.parametrize(
    ("error", "tries"),
    [(DEFECT, POSTPONED_TRIES), (REFUSED, REFUSED_TRIES), (PROXY, FOREIGN_REFUSED_TRIES)],
)
def test_the_error_decides_how_often_a_report_is_tried(error: MitosisError, tries: int) -> None:
    world = World({1: (error, tries - 1)})
    run_skipping(world())
    kinds = [kind for _, _, kind in world.sent]
    assert kinds == [None] * (tries - 1) + ["result_refused"], "the first try was before"
    times = [at for at, _, _ in world.sent]
    assert all(after - before <= 300 for before, after in pairwise(times))


@pytest.mark.parametrize("error", [DEFECT, REFUSED, PROXY])
def test_what_is_refused_once_and_then_taken_keeps_its_result(error: MitosisError) -> None:
    world = World({1: (error, 0)})
    run_skipping(world())
    assert [kind for _, _, kind in world.sent] == [None]


def test_what_not_even_the_small_report_can_end_is_given_up() -> None:
    world = World({1: (REFUSED, 10_000)})
    run_skipping(world())
    assert len(world.sent) == REFUSED_TRIES - 1 + POSTPONED_TRIES
    assert world.sent[-1][0] > 1_500, "time to set another limit"


def test_a_report_does_not_wait_for_one_with_a_longer_pause() -> None:
    world = World({1: (DEFECT, 12), 2: (DEFECT, 0)})
    run_skipping(world((1_000.0, 2)))
    (at,) = [at for at, task_id, _ in world.sent if task_id == 2]
    assert at < 1_002


def test_only_what_ends_within_seconds_is_waited_for() -> None:
    async def program() -> list[bool]:
        send: Any = None
        held, found = PostponedReports(send, lambda: None), []
        held.add((7, report(1)), DEFECT)
        found.append(held.settling)
        held.add((7, report(2)), REFUSED)
        found.append(held.settling)
        return found

    assert run_skipping(program()) == [False, True]
