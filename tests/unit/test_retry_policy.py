"""One policy and one reading of Retry-After: the pauses, what is worth another try, and every loop."""

import asyncio
import math
from collections.abc import AsyncGenerator, Awaitable, Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mitosis import fates
from mitosis.client.following import follow
from mitosis.client.problems import error_from
from mitosis.client.repeating import SDK_POLICY, repeating
from mitosis.contracts.errors import (
    BY_CODE,
    ApiUnavailable,
    MitosisError,
    NotFound,
    QueueFull,
    RateLimited,
)
from mitosis.embedded.supervisor import RESTARTS
from mitosis.execution.backoff import AGENT_POLICY, REPORT_POLICY, until_reached
from mitosis.execution.reactor import RESPAWNS
from mitosis.execution.report_sender import ReportSender
from mitosis.retry_policy import Backoff, RetryPolicy, is_no_refusal, is_retryable, retry_after
from mitosis.retry_policy import retrying as retry
from tests.support.examples import examples
from tests.support.skipping_loop import run_skipping
from workflows.control import SESSIONS

LOOPING = settings(max_examples=examples(10))
"""For tests that start an event loop in every example."""

POLICIES = [SDK_POLICY, AGENT_POLICY, REPORT_POLICY, RESPAWNS, RESTARTS, SESSIONS]
ASKED = st.none() | st.floats(0.001, 1_000.0) | st.integers(1, 1_000)
FAR = timedelta(days=1_000)


def unavailable(asked: float | None) -> ApiUnavailable:
    return ApiUnavailable(retry_after_seconds=asked)


@given(policy=st.sampled_from(POLICIES), failures=st.integers(0, 10_000), asked=ASKED)
def test_a_pause_grows_to_its_limit_and_is_never_shorter_than_asked(
    policy: RetryPolicy, failures: int, asked: float | None
) -> None:
    pause = policy.pause(failures, unavailable(asked))
    full = min(policy.longest_seconds, policy.first_seconds * 2.0 ** min(failures, 64))
    assert pause >= (asked or 0.0)
    assert pause >= full * (1.0 - policy.jitter)
    assert pause <= max(full, asked or 0.0)


@given(asked=st.none() | st.booleans() | st.floats() | st.text() | st.lists(st.integers()))
def test_what_is_no_number_of_seconds_asks_for_nothing(asked: Any) -> None:
    error = MitosisError()
    error.facts["retry_after_seconds"] = asked
    said = isinstance(asked, int | float) and asked > 0 and math.isfinite(asked)
    assert retry_after(error) == (asked if said else 0.0)
    assert retry_after(None) == retry_after(ValueError()) == 0.0


def test_a_success_starts_over() -> None:
    backoff = Backoff(RESTARTS)
    assert [backoff.next_pause() for _ in range(3)] == [0.1, 0.2, 0.4]
    backoff.reset()
    assert backoff.next_pause() == 0.1


@pytest.mark.parametrize("cls", BY_CODE.values())
def test_what_is_worth_another_try(cls: type[MitosisError]) -> None:
    error = cls.__new__(cls)
    MitosisError.__init__(error)
    assert BY_CODE.keys() == fates.BY_CODE.keys(), "each code has its row in the one table"
    assert is_retryable(error) is cls.retryable
    assert is_no_refusal(error) is (cls.retryable or cls.http_status >= 500)


@pytest.mark.parametrize(
    ("status", "retryable", "refusal"),
    [
        (404, False, False),
        (408, True, False),
        (413, False, False),
        (425, True, False),
        (429, True, False),
        (500, False, False),
        (503, True, False),
    ],
)
def test_an_answer_of_another_server_is_no_refusal(
    status: int, retryable: bool, refusal: bool
) -> None:
    error = error_from(status, {"content-type": "text/html"}, b"<html>")
    assert (is_retryable(error), not is_no_refusal(error)) == (retryable, refusal)


# --- the loops: each is given errors and then its end ------------------------------------------------


class Api:
    """Fails with these errors, then answers; notes when it was called."""

    def __init__(self, errors: list[MitosisError]) -> None:
        self.errors = list(errors)
        self.times: list[float] = []

    async def call(self, *_: object) -> Any:
        self.times.append(asyncio.get_running_loop().time())
        if self.errors:
            raise self.errors.pop(0)
        return SimpleNamespace(statuses=[], standing=None)

    async def events(self, *_: object) -> AsyncGenerator[Any]:
        await self.call()
        yield SimpleNamespace(id="1", event="end", data="{}")


async def by_following(api: Api) -> None:
    connection: Any = api
    async for _ in follow(connection, "/events", {}, FAR):
        pass


async def by_reporting(api: Api) -> None:
    calls: Any = SimpleNamespace(report=api.call)
    await ReportSender(calls, lambda *_: None, lambda *_: None).send(7, [])


LOOPS: dict[str, tuple[RetryPolicy, Callable[[Api], Awaitable[object]]]] = {
    "the SDK": (SDK_POLICY, lambda api: repeating(api.call, FAR)),
    "a stream": (SDK_POLICY, by_following),
    "an agent": (AGENT_POLICY, lambda api: until_reached(api.call)),
    "reports": (REPORT_POLICY, by_reporting),
}


@pytest.mark.parametrize("loop", LOOPS)
@LOOPING
@given(asked=st.lists(ASKED, min_size=1, max_size=6))
def test_every_loop_waits_as_the_policy_says(loop: str, asked: list[float | None]) -> None:
    policy, run = LOOPS[loop]
    api = Api([unavailable(seconds) for seconds in asked])

    async def program() -> None:
        await run(api)

    run_skipping(program())
    assert len(api.times) == len(asked) + 1
    for failures, seconds in enumerate(asked):
        paused = api.times[failures + 1] - api.times[failures]
        full = min(policy.longest_seconds, policy.first_seconds * 2.0**failures)
        assert paused >= max(full / 2, seconds or 0.0) - 1e-6
        assert paused <= max(full, seconds or 0.0) + 1e-6


@pytest.mark.parametrize(("loop", "tries"), [("the SDK", 1), ("a stream", 1), ("an agent", 1)])
def test_a_refusal_is_raised_at_once(loop: str, tries: int) -> None:
    api = Api([NotFound()])

    async def program() -> None:
        await LOOPS[loop][1](api)

    with pytest.raises(NotFound):
        run_skipping(program())
    assert len(api.times) == tries


# --- the time limit ---------------------------------------------------------------------------------


@LOOPING
@given(limit=st.floats(0.0, 100.0), asked=ASKED)
def test_the_last_error_is_raised_before_a_pause_that_passes_the_limit(
    limit: float, asked: float | None
) -> None:
    api = Api([unavailable(asked)] * 10_000)

    async def program() -> None:
        with pytest.raises(ApiUnavailable):
            await retry(api.call, SDK_POLICY, give_up_after=limit)
        assert asyncio.get_running_loop().time() <= limit

    run_skipping(program())


def test_a_full_queue_is_waited_out() -> None:
    api = Api([QueueFull(retry_after_seconds=50)] * 20 + [RateLimited(retry_after_seconds=59)])

    async def program() -> None:
        await repeating(api.call, timedelta(seconds=60))

    run_skipping(program())
    assert len(api.times) == 22
