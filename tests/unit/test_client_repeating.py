"""The SDK makes a call again only when that can help, and not sooner than it was asked."""

from datetime import timedelta

import pytest
import stamina

from mitosis.client.repeating import backoff, repeating
from mitosis.contracts.errors import (
    ApiUnavailable,
    DatabaseUnavailable,
    MitosisError,
    NotFound,
    RateLimited,
)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (RateLimited(retry_after_seconds=7), 7.0),
        (DatabaseUnavailable(), True),
        (ApiUnavailable(), True),
        (NotFound(), False),
        (ValueError(), False),
    ],
)
def test_backoff(error: Exception, expected: bool | float) -> None:
    assert backoff(error) == expected


async def test_repeats_until_answered() -> None:
    errors: list[MitosisError] = [ApiUnavailable(), DatabaseUnavailable()]

    async def call() -> str:
        if errors:
            raise errors.pop()
        return "answer"

    with stamina.set_testing(True, attempts=10):
        assert await repeating(call, timedelta(seconds=5)) == "answer"


async def test_gives_up_with_the_last_error() -> None:
    async def call() -> str:
        raise ApiUnavailable("nobody there")

    with pytest.raises(ApiUnavailable, match="nobody there"):
        await repeating(call, timedelta(seconds=0.3))


async def test_does_not_repeat_what_cannot_change() -> None:
    calls = 0

    async def call() -> str:
        nonlocal calls
        calls += 1
        raise NotFound

    with pytest.raises(NotFound):
        await repeating(call, timedelta(seconds=5))
    assert calls == 1
