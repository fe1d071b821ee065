"""The embedded server: starts on a free port, stops in bounded time, held requests or not."""

import asyncio
import contextlib
import socket
import time
from datetime import timedelta

import httpx2
import pytest
from fastapi import FastAPI, Request

from api.envelope import RequestEnvelope
from api.errors import install_error_handlers
from api.long_polls import LongPolls
from api.server import _bind, serving
from mitosis.contracts.errors import ConfigurationError
from tests.support.waiting import wait_until_async


class HeldApp:
    """An application with one request that is held for ever, one that ends by itself, one that breaks."""

    def __init__(self) -> None:
        self.long_polls = LongPolls()
        self.held = 0
        self.app = FastAPI()
        self.app.add_middleware(RequestEnvelope)
        install_error_handlers(self.app)
        self.app.get("/held")(self._held)
        self.app.get("/stuck")(self._stuck)
        self.app.get("/broken")(self._broken)

    async def _held(self, request: Request) -> None:
        await self.long_polls.hold(request, self._for_ever())

    async def _for_ever(self) -> None:
        self.held += 1
        try:
            await asyncio.Event().wait()
        finally:
            self.held -= 1

    async def _stuck(self) -> None:
        await self._for_ever()

    async def _broken(self) -> None:
        raise RuntimeError("a secret of the database")

    async def until_held(self, count: int) -> None:
        await wait_until_async(lambda: self.held == count)


async def test_a_stop_answers_held_requests_at_once() -> None:
    it, patience = HeldApp(), timedelta(seconds=60)
    async with httpx2.AsyncClient(trust_env=False, timeout=30) as http:
        async with serving(it.app, release=it.long_polls.release, stop_after=patience) as url:
            asking = asyncio.create_task(http.get(url + "/held"))
            await it.until_held(1)
            began = time.monotonic()
        assert time.monotonic() - began < 20
        answer = await asking
    assert (answer.status_code, answer.json()["code"]) == (503, "api_unavailable")
    assert answer.headers["retry-after"] == "1"
    assert it.held == 0


async def test_a_client_that_leaves_frees_its_waiter() -> None:
    it = HeldApp()
    async with serving(it.app, release=it.long_polls.release) as url:
        async with httpx2.AsyncClient(trust_env=False) as http:
            asking = asyncio.create_task(http.get(url + "/held"))
            await it.until_held(1)
            asking.cancel()
            await asyncio.wait([asking])
        await it.until_held(0)


async def test_a_stop_is_bounded_also_for_requests_that_do_not_end() -> None:
    it = HeldApp()
    async with httpx2.AsyncClient(trust_env=False) as http:
        async with serving(it.app, stop_after=timedelta(seconds=1)) as url:
            asking = asyncio.create_task(http.get(url + "/stuck"))
            await it.until_held(1)
            began = time.monotonic()
        assert 0.9 < time.monotonic() - began < 20
        await asyncio.wait([asking])
        asking.exception()


@pytest.mark.parametrize("turns", range(6))
async def test_a_stop_also_ends_a_connection_that_is_being_accepted(turns: int) -> None:
    """Whatever turn of the loop the server has got to with it."""
    it = HeldApp()
    async with serving(it.app, release=it.long_polls.release) as url:
        host, port = url.removeprefix("http://").split(":")
        client = socket.create_connection((host, int(port)))
        for _ in range(turns):
            await asyncio.sleep(0)
    with client, contextlib.suppress(ConnectionError):
        client.settimeout(5)
        client.sendall(b"GET /held HTTP/1.1\r\nhost: here\r\n\r\n")
        assert not client.recv(100)


async def test_what_nobody_expected_tells_nothing(caplog: pytest.LogCaptureFixture) -> None:
    it = HeldApp()
    async with serving(it.app) as url, httpx2.AsyncClient(trust_env=False) as http:
        answer = await http.get(url + "/broken", headers={"X-Request-Id": "mine-1"})
    assert (answer.status_code, answer.json()["code"]) == (500, "internal")
    assert answer.json()["request_id"] == answer.headers["x-request-id"] == "mine-1"
    assert "secret" not in answer.text
    crashed = [record for record in caplog.records if record.message == "request.crashed"]
    assert [getattr(record, "request_id", None) for record in crashed] == ["mine-1"]


async def test_a_request_id_that_is_no_plain_word_is_not_kept() -> None:
    it = HeldApp()
    async with serving(it.app) as url, httpx2.AsyncClient(trust_env=False) as http:
        answer = await http.get(url + "/nowhere", headers={"X-Request-Id": "a b"})
    assert answer.json()["code"] == "not_found"
    assert len(answer.headers["x-request-id"]) == 32


async def test_two_servers_stand_beside_each_other() -> None:
    it = HeldApp()
    async with serving(it.app) as one, serving(it.app) as other:
        assert one != other


async def test_a_port_taken_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigurationError, match=f"127.0.0.1 port {port}"):
            async with serving(HeldApp().app, port=port):
                pass


def test_an_answer_never_waits_for_the_acknowledgement_of_its_head() -> None:
    with _bind("127.0.0.1", 0) as listener, socket.create_connection(listener.getsockname()):
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
