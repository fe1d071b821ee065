"""When an agent renews its token, and what it does when that fails."""

import asyncio
import errno
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import pytest

from api.auth import Subject, TokenSigner
from manager_agent import token_renewal
from manager_agent.registration import (
    Credentials,
    TokenFacts,
    ensure_registered,
    facts_of,
    keep_credentials,
    read_credentials,
)
from manager_agent.token_renewal import TokenRenewal, due_at
from mitosis.contracts.errors import ApiUnavailable, MitosisError, NotFound, Unauthenticated
from mitosis.contracts.http import RegisteredManager, RegisterManager, Token
from mitosis.embedded.data_folder import ed25519_private_key

MANAGER = uuid4()
SIGNER = TokenSigner(ed25519_private_key())


def token(age: timedelta, lifetime: timedelta, version: int = 1) -> Credentials:
    """Credentials whose token is so old."""
    issued = SIGNER.issue(Subject("manager", MANAGER, version), lifetime - age)
    return Credentials(MANAGER, issued.token)


def test_a_token_is_due_after_a_third_of_its_life() -> None:
    assert due_at(TokenFacts(sub="manager:x", ver=1, iat=1000, exp=4000)) == 2000


class Clock:
    """A clock that only pauses move; they take no time."""

    def __init__(self) -> None:
        self.began = self.time = time.time()

    def now(self) -> float:
        return self.time

    async def pause(self, seconds: float) -> None:
        self.time += seconds
        await asyncio.sleep(0)


class Renewals:
    """Answers from a list; each renewal is counted, the last one ends the test."""

    def __init__(self, *answers: MitosisError | timedelta) -> None:
        self.answers = list(answers)
        self.asked: list[timedelta] = []
        self.used: list[str] = []
        self.over = asyncio.Event()
        self.clock = Clock()
        self.asked_at: list[float] = []
        """In seconds since the start, by the clock of the agent."""

    async def renew(self, lifetime: timedelta) -> Token:
        if not self.answers:
            await asyncio.Event().wait()  # until the test ends
        self.asked.append(lifetime)
        self.asked_at.append(self.clock.time - self.clock.began)
        answer = self.answers.pop(0)
        if not self.answers:
            self.over.set()
        if isinstance(answer, MitosisError):
            raise answer
        return SIGNER.issue(Subject("manager", MANAGER, 1), answer)


async def run(renewals: Renewals, folder: Path, credentials: Credentials) -> Clock:
    clock = renewals.clock
    renewal = TokenRenewal(
        credentials,
        folder,
        renewals.renew,
        renewals.used.append,
        now=clock.now,
        pause=clock.pause,
    )
    running = asyncio.ensure_future(renewal.run())
    ended = asyncio.ensure_future(renewals.over.wait())
    await asyncio.wait([running, ended], return_when=asyncio.FIRST_COMPLETED)
    if running.done():
        running.result()
    running.cancel()
    ended.cancel()
    return clock


@pytest.mark.spec("S000-156")
async def test_each_token_is_replaced_before_it_expires_and_is_on_disk_before_it_is_used(
    tmp_path: Path,
) -> None:
    day = timedelta(days=1)
    renewals = Renewals(2 * day, 2 * day, day)
    on_disk: list[bool] = []

    class Used(list[str]):
        def append(self, token: str) -> None:
            super().append(token)
            kept = read_credentials(tmp_path)
            on_disk.append(kept is not None and kept.token == token)

    renewals.used = Used()
    await run(renewals, tmp_path, token(timedelta(), day))
    assert len(renewals.used) >= 2
    assert all(on_disk)
    assert renewals.asked == [day, 2 * day, 2 * day], "as long as the present one"
    assert (tmp_path / "manager.json").stat().st_mode & 0o777 == 0o600


async def test_a_renewal_that_fails_is_tried_again_while_the_token_is_valid(tmp_path: Path) -> None:
    day = timedelta(days=1)
    renewals = Renewals(ApiUnavailable("away"), NotFound("there is no such path"), day, day)
    clock = await run(renewals, tmp_path, token(timedelta(), day))
    assert len(renewals.asked) == 4
    assert renewals.used
    assert clock.time - clock.began < day.total_seconds()


async def test_a_token_that_cannot_be_kept_is_no_reason_to_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = [OSError(errno.ENOSPC, "no space left")]

    def keep(folder: Path, credentials: Credentials) -> None:
        if failures:
            raise failures.pop()
        keep_credentials(folder, credentials)

    monkeypatch.setattr(token_renewal, "keep_credentials", keep)
    day = timedelta(days=1)
    renewals = Renewals(9 * day, day, day)
    await run(renewals, tmp_path, token(timedelta(), day))
    kept = read_credentials(tmp_path)
    assert kept is not None
    assert kept.token in renewals.used
    first, second, *_ = renewals.asked_at
    assert second - first == token_renewal.AGAIN_SECONDS, "the earlier one is not forgotten"


async def test_a_clock_that_is_ahead_makes_no_loop(tmp_path: Path) -> None:
    """Each new token is due at once, by the clock here."""
    day = timedelta(days=1)
    renewals = Renewals(*[timedelta(seconds=60)] * 4)
    await run(renewals, tmp_path, token(timedelta(hours=23), day))
    first, *others = renewals.asked_at
    assert others == [first + n * token_renewal.AGAIN_SECONDS for n in (1, 2, 3)]


async def test_a_revoked_token_ends_the_agent(tmp_path: Path) -> None:
    renewals = Renewals(Unauthenticated("revoked"), timedelta(days=1))
    with pytest.raises(Unauthenticated):
        await run(renewals, tmp_path, token(timedelta(), timedelta(days=1)))


async def test_a_token_that_says_nothing_is_left_alone(tmp_path: Path) -> None:
    renewals = Renewals(timedelta(days=1))
    await TokenRenewal(
        Credentials(MANAGER, "secret"), tmp_path, renewals.renew, renewals.used.append
    ).run()
    assert renewals.asked == []


@pytest.mark.parametrize(
    ("stored", "given", "newer"),
    [
        (token(timedelta(), timedelta(days=9)), token(timedelta(), timedelta(days=1)), False),
        (token(timedelta(), timedelta(days=1)), token(timedelta(), timedelta(days=9)), True),
        (token(timedelta(), timedelta(days=9)), token(timedelta(), timedelta(days=1), 2), True),
        (Credentials(MANAGER, "secret"), token(timedelta(), timedelta(days=1)), True),
        (token(timedelta(), timedelta(days=1)), Credentials(MANAGER, "secret"), False),
        (Credentials(uuid4(), "secret"), token(timedelta(), timedelta(days=1)), False),
    ],
)
async def test_a_given_token_replaces_an_older_one_of_the_same_host(
    tmp_path: Path, stored: Credentials, given: Credentials, newer: bool
) -> None:
    async def never(spec: RegisterManager) -> RegisteredManager:
        raise AssertionError(spec)

    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    keep_credentials(state, stored)
    found = await ensure_registered(never, state, RegisterManager(), given.token)
    assert found == (given if newer else stored)
    assert read_credentials(state) == found


def test_what_a_token_says_is_read_without_its_key() -> None:
    facts = facts_of(token(timedelta(), timedelta(days=1), 7).token)
    assert facts is not None
    assert (facts.manager_id, facts.ver, facts.exp - facts.iat) == (MANAGER, 7, 86_400)
    assert abs(datetime.fromtimestamp(facts.iat, UTC) - datetime.now(UTC)) < timedelta(minutes=1)
