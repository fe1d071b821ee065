"""The loops of the API end with it only: what goes wrong at one look does not end the next ones."""

import asyncio
from datetime import datetime
from typing import cast

import pytest

from api import certificate, held_calls
from api.certificate import ServedCertificate
from api.held_calls import HeldCalls
from mitosis.store.store import Store


class Third:
    """Fails twice in a way that is not foreseen."""

    def __init__(self) -> None:
        self.calls = 0
        self.reached = asyncio.Event()

    def called(self) -> None:
        self.calls += 1
        if self.calls < 3:
            raise RuntimeError("not foreseen")
        asyncio.get_running_loop().call_soon(self.reached.set)


async def test_tokens_of_held_calls_are_checked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_calls, "LOOK_SECONDS", 0.0)
    third = Third()

    async def check(_: Store) -> None:
        third.called()

    calls = HeldCalls()
    monkeypatch.setattr(calls, "check_tokens", check)
    async with calls.checking_tokens(cast(Store, None)):
        await asyncio.wait_for(third.reached.wait(), 10)


async def test_the_certificate_is_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certificate, "LOOK_SECONDS", 0.0)
    loop, third = asyncio.get_running_loop(), Third()

    def look(_: datetime) -> None:  # in a thread
        asyncio.run_coroutine_threadsafe(called(), loop).result()

    async def called() -> None:
        third.called()

    served = ServedCertificate.__new__(ServedCertificate)
    monkeypatch.setattr(ServedCertificate, "look", lambda _, now: look(now))
    async with served.watched():
        await asyncio.wait_for(third.reached.wait(), 10)
