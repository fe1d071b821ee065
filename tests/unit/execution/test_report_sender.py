"""Whatever the API refuses, for good or for now: each report ends once, and soon, and holds up no other."""

import asyncio
import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mitosis.client.problems import error_from
from mitosis.contracts.attempt import AttemptKey
from mitosis.contracts.errors import (
    ApiUnavailable,
    InvalidRequest,
    MitosisError,
    NotFound,
    Overloaded,
    PermissionDenied,
    TooLarge,
    Unauthenticated,
)
from mitosis.contracts.wire import (
    LeaseStanding,
    Outcome,
    ReportAnswer,
    ReportStatus,
    TaskReport,
)
from mitosis.execution.backoff import POSTPONED_TRIES
from mitosis.execution.postponed_reports import PostponedReports
from mitosis.execution.report_sender import ReportSender
from mitosis.ipc.messages import EncodedReport
from tests.support.examples import examples
from tests.support.skipping_loop import run_skipping

HOUR = 3600.0
decode = msgspec.json.Decoder(TaskReport).decode


@pytest.fixture(autouse=True, scope="module")
def quiet() -> Iterator[None]:
    """Thousands of postponed reports are no news here."""
    logging.disable(logging.ERROR)
    yield
    logging.disable(logging.NOTSET)


def foreign(status: int) -> MitosisError:
    """What a proxy answers."""
    return error_from(status, {"content-type": "text/html"}, b"<html>")


REFUSALS = {
    "invalid": InvalidRequest("no such value", field="reports[0]"),
    "a path that is gone": NotFound(),
    "a firewall": foreign(403),
    "a proxy": foreign(400),
}
TROUBLES = {
    "away": ApiUnavailable(),
    "busy": Overloaded(retry_after_seconds=2.0),
    "a defect": MitosisError(),
    "another server": foreign(404),
    "a gateway": foreign(502),
    "a rolling upgrade": InvalidRequest("unknown field"),
}


@dataclass(frozen=True)
class Case:
    """One report: its size and what the API makes of it."""

    size: int = 0
    refusal: str | None = None
    broken: int = 0
    """So many calls with it end in an internal error; more than any agent tries: for ever."""
    outcome: Outcome = Outcome.SUCCEEDED


ALWAYS = 10_000
CASES = st.lists(
    st.builds(
        Case,
        size=st.sampled_from([0, 0, 0, 500, 5_000]),
        refusal=st.none() | st.none() | st.sampled_from(sorted(REFUSALS)),
        broken=st.sampled_from([0, 0, 0, 1, 3, ALWAYS]),
        outcome=st.sampled_from(list(Outcome)),
    ),
    min_size=1,
    max_size=40,
)


class Api:
    """Answers as its cases say; before that every call meets one of the troubles."""

    def __init__(
        self, cases: Sequence[Case], limit: int, limited: MitosisError, troubles: list[str]
    ) -> None:
        self.cases, self.limit, self.limited = cases, limit, limited
        self.troubles = [TROUBLES[name] for name in troubles]
        """One after the other, the next one as soon as one is over."""
        self.met: Counter[int] = Counter()
        self.calls = 0
        self.taken: dict[int, list[TaskReport]] = {}

    async def report(self, epoch: int, reports: Sequence[bytes]) -> ReportAnswer:
        self.calls += 1
        if self.troubles:
            raise self.troubles.pop(0)
        if sum(map(len, reports)) > self.limit:
            raise self.limited
        found = [decode(report) for report in reports]
        for one in found:
            self._check(one)
        for one in found:
            self.taken.setdefault(one.task_id, []).append(one)
        return ReportAnswer(
            standing=LeaseStanding.ACTIVE, statuses=[ReportStatus.COMMITTED] * len(found)
        )

    def _check(self, report: TaskReport) -> None:
        case = self.cases[report.task_id]
        if report.kind == "result_refused" or b"refused for good" in bytes(report.detail):
            return
        if case.refusal is not None:
            raise REFUSALS[case.refusal]
        self.met[report.task_id] += 1
        if self.met[report.task_id] <= case.broken:
            raise MitosisError("a defect")


def report_of(task_id: int, case: Case) -> EncodedReport:
    detail = msgspec.Raw(b'{"result":"%s"}' % (b"x" * case.size))
    return EncodedReport.of(
        TaskReport(
            task_id=task_id,
            attempt=1,
            outcome=case.outcome,
            exit_code=3 if case.outcome is Outcome.FAILED else None,
            detail=detail,
        )
    )


class Run:
    """A sender and its postponed reports, until everything is answered."""

    def __init__(self, api: Api) -> None:
        self.answered: list[AttemptKey] = []
        self.postponed: list[AttemptKey] = []
        calls: Any = api
        self.sender = ReportSender(calls, self._on_answer, self._on_postponed)

    async def __call__(self, reports: Sequence[EncodedReport]) -> None:
        changed = asyncio.Event()
        self.later = PostponedReports(self.sender.send, changed.set)
        running = asyncio.create_task(self.later.run())
        await self.sender.send(7, reports)
        self.sent_at = asyncio.get_running_loop().time()
        while self.later.entries():
            await changed.wait()
            changed.clear()
        running.cancel()

    def _on_answer(self, _: int, reports: Sequence[EncodedReport], __: ReportAnswer) -> None:
        self.answered += [report.key for report in reports]

    def _on_postponed(self, epoch: int, report: EncodedReport, error: MitosisError) -> None:
        self.postponed.append(report.key)
        self.later.add((epoch, report), error)


@settings(max_examples=examples(10))
@given(
    cases=CASES,
    limit=st.sampled_from([1_000, 6_000, 10**9]),
    limited=st.sampled_from([TooLarge(), foreign(413)]),
    troubles=st.lists(st.sampled_from(sorted(TROUBLES)), max_size=4),
)
def test_each_report_ends_once_and_only_what_is_refused_is_replaced(
    cases: list[Case], limit: int, limited: MitosisError, troubles: list[str]
) -> None:
    api = Api(cases, limit, limited, troubles)
    run = Run(api)
    took = run_skipping(timed(run([report_of(n, case) for n, case in enumerate(cases)])))
    assert api.taken.keys() == set(range(len(cases)))
    assert sorted(run.answered) == [(n, 1) for n in range(len(cases))]
    for task_id, case in enumerate(cases):
        (taken,) = api.taken[task_id]
        lost = case.refusal is not None or case.size > limit or case.broken == ALWAYS
        if not lost:
            assert taken == decode(report_of(task_id, case).report)
        elif case.outcome is Outcome.CANCELLED:
            assert (taken.outcome, taken.kind) == ("cancelled", "cancelled")
        else:
            assert (taken.outcome, taken.kind) == ("failed", "result_refused")
            assert b"refused for good" in bytes(taken.detail)
    odd = sum(case.refusal is not None or case.size > limit for case in cases)
    broken = sum(case.broken > 0 for case in cases)
    assert run.sent_at < 60, "nobody waits for one bad report"
    assert took < 3 * HOUR
    assert api.calls < 20 + 20 * (odd + len(cases)) + broken * (POSTPONED_TRIES * 2 + 20)


async def timed(program: Any) -> float:
    await program
    return asyncio.get_running_loop().time()


@pytest.mark.parametrize("error", [Unauthenticated(), PermissionDenied()])
def test_a_refusal_of_the_agent_itself_is_raised(error: MitosisError) -> None:
    """Also when it answers the call that is to find out whose fault an earlier refusal was."""
    for troubles in ([error], [MitosisError(), error]):
        api = Api([Case()], 10**9, TooLarge(), [])
        api.troubles = list(troubles)
        with pytest.raises(type(error)):
            run_skipping(Run(api)([report_of(0, Case())]))
        assert api.taken == {}


@pytest.mark.parametrize("name", ["another server", "a defect"])
def test_while_every_call_is_refused_nothing_is_replaced(name: str) -> None:
    """A wrong server in the API's place for an hour: pauses grow, no result is lost."""
    cases = [Case(size=5_000)] * 30
    api = Api(cases, 10**9, TooLarge(), [name] * 130)
    took = run_skipping(timed(Run(api)([report_of(n, case) for n, case in enumerate(cases)])))
    assert took > HOUR / 2
    assert all(taken.kind is None for (taken,) in api.taken.values())
    assert api.calls < 140


def test_a_batch_too_large_for_the_network_is_made_smaller() -> None:
    class Slow(Api):
        async def report(self, epoch: int, reports: Sequence[bytes]) -> ReportAnswer:
            if sum(map(len, reports)) > 1_500_000:
                self.calls += 1
                raise ApiUnavailable("no answer")
            return await super().report(epoch, reports)

    cases = [Case(size=400_000)] * 10
    api = Slow(cases, 10**9, TooLarge(), [])
    took = run_skipping(timed(Run(api)([report_of(n, case) for n, case in enumerate(cases)])))
    assert len(api.taken) == 10
    assert took < 1
