"""How often logins may fail, with a clock of the test."""

from dataclasses import dataclass

import pytest

from api import logins
from api.logins import ADDRESS_BURST, ADDRESS_EVERY, NAME_BURST, NAME_EVERY, LoginLimit
from mitosis.contracts.errors import DatabaseUnavailable, RateLimited, Unauthenticated


@dataclass
class Clock:
    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def limit(clock: Clock) -> LoginLimit:
    return LoginLimit(clock)


def fail(limit: LoginLimit, name: str = "ann", address: str = "192.0.2.1") -> None:
    with pytest.raises(Unauthenticated), limit.attempt(name, address):
        raise Unauthenticated


def wait_of(limit: LoginLimit, name: str = "ann", address: str = "192.0.2.1") -> float:
    """0 = an attempt is allowed."""
    try:
        with limit.attempt(name, address):
            return 0.0
    except RateLimited as error:
        return float(error.facts["retry_after_seconds"])


def test_a_name_may_fail_a_few_times_and_then_now_and_again(
    limit: LoginLimit, clock: Clock
) -> None:
    for _ in range(NAME_BURST):
        assert wait_of(limit) == 0
        fail(limit)
    every = NAME_EVERY.total_seconds()
    assert wait_of(limit) == every
    clock.now += every - 1
    assert wait_of(limit) == 1
    clock.now += 1
    fail(limit)
    assert wait_of(limit) == every
    clock.now += 100 * every
    for _ in range(NAME_BURST):
        fail(limit)
    assert wait_of(limit) == every, "more than the whole is not saved up"


def test_nobody_is_locked_out_from_afar(limit: LoginLimit) -> None:
    for _ in range(NAME_BURST):
        fail(limit)
    assert wait_of(limit) > 0
    assert wait_of(limit, address="192.0.2.2") == 0
    assert wait_of(limit, "ben") == 0


def test_an_address_may_fail_so_often_whatever_the_names(limit: LoginLimit) -> None:
    for number in range(ADDRESS_BURST):
        fail(limit, f"name-{number}", f"2001:db8::{number + 1}")
    assert wait_of(limit, "ann", "2001:db8::ffff") == ADDRESS_EVERY.total_seconds()
    assert wait_of(limit, "ann", "2001:db8:0:1::1") == 0, "another /64"


def test_what_cannot_be_checked_does_not_count(limit: LoginLimit) -> None:
    for _ in range(NAME_BURST + 1):
        with pytest.raises(DatabaseUnavailable), limit.attempt("ann", "192.0.2.1"):
            raise DatabaseUnavailable
    assert wait_of(limit) == 0


def test_an_attempt_counts_while_it_is_under_way(limit: LoginLimit) -> None:
    under_way = [limit.attempt("ann", "192.0.2.1") for _ in range(NAME_BURST)]
    for attempt in under_way:
        attempt.__enter__()
    assert wait_of(limit) > 0
    for attempt in under_way:
        attempt.__exit__(None, None, None)
    assert wait_of(limit) == 0


def test_what_is_kept_is_bounded(limit: LoginLimit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logins, "KEYS", 10)
    for number in range(50):
        fail(limit, f"{'x' * 1_000}{number}", f"192.0.2.{number}")
        assert len(limit.by_name) <= 10
        assert len(limit.by_address) <= 10
    assert all(len(key) < 200 for key in limit.by_name._whole_at)
    for _ in range(NAME_BURST):
        fail(limit)
    assert wait_of(limit) > 0, "the newest are remembered"
