"""The SDK makes a call again only when that can help, and not sooner than it was asked."""

import time
from datetime import timedelta

import pytest

from mitosis.client.repeating import SDK_POLICY, repeating
from mitosis.contracts.errors import (
    ApiUnavailable,
    DatabaseUnavailable,
    MitosisError,
    NotFound,
    RateLimited,
)


def test_it_waits_no_shorter_than_asked() -> None:
    assert SDK_POLICY.pause(0, RateLimited(retry_after_seconds=7)) == 7.0
    assert SDK_POLICY.pause(9, RateLimited(retry_after_seconds=0.02)) >= 2.5


def test_it_waits_longer_each_time_up_to_a_limit() -> None:
    first, later = SDK_POLICY.pause(0), SDK_POLICY.pause(4)
    assert 0.05 <= first <= 0.1 < 0.8 <= later <= 1.6
    assert 2.5 <= SDK_POLICY.pause(1000) <= 5.0
    assert len({SDK_POLICY.pause(3) for _ in range(9)}) > 1  # not all clients at once


class Api:
    """Answers with errors, then well; remembers when it was called."""

    def __init__(self, *errors: MitosisError) -> None:
        self.errors = list(errors)
        self.calls: list[float] = []

    async def call(self) -> str:
        self.calls.append(time.monotonic())
        if self.errors:
            raise self.errors.pop(0)
        return "answer"


async def test_repeats_until_answered() -> None:
    api = Api(ApiUnavailable(), DatabaseUnavailable())
    assert await repeating(api.call, timedelta(seconds=5)) == "answer"
    assert len(api.calls) == 3


async def test_comes_back_no_sooner_than_asked() -> None:
    api = Api(RateLimited(retry_after_seconds=0.3))
    assert await repeating(api.call, timedelta(seconds=5)) == "answer"
    assert api.calls[1] - api.calls[0] >= 0.3


async def test_gives_up_with_the_last_error() -> None:
    api = Api(*[ApiUnavailable("nobody there")] * 20)
    with pytest.raises(ApiUnavailable, match="nobody there"):
        await repeating(api.call, timedelta(seconds=0.3))
    assert len(api.calls) > 1


async def test_does_not_wait_for_what_comes_after_the_deadline() -> None:
    api = Api(RateLimited(retry_after_seconds=3600))
    began = time.monotonic()
    with pytest.raises(RateLimited):
        await repeating(api.call, timedelta(seconds=30))
    assert time.monotonic() - began < 5


async def test_does_not_repeat_what_cannot_change() -> None:
    api = Api(NotFound())
    with pytest.raises(NotFound):
        await repeating(api.call, timedelta(seconds=5))
    assert len(api.calls) == 1
