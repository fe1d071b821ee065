"""Calls to the API against servers that answer, refuse, say nothing and lie; the backoff of agents."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from mitosis.client import api_calls
from mitosis.client.api_calls import ApiCalls
from mitosis.contracts.errors import (
    ApiUnavailable,
    ConfigurationError,
    DatabaseUnavailable,
    InvalidTransition,
    LeaseLost,
    MitosisError,
)
from mitosis.execution.backoff import AGENT_POLICY, is_refusal, until_reached
from tests.support.waiting import wait_until_async

Script = Callable[[int, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def talking_to(script: Script) -> AsyncIterator[tuple[ApiCalls, list[bytes]]]:
    """The API as a server that reads whole requests and lets ``script`` answer."""
    requests: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
                requests.append(head + await reader.readexactly(length))
                await script(len(requests), reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    api = ApiCalls(f"http://127.0.0.1:{port}/deep/", "t0k", "test")
    try:
        yield api, requests
    finally:
        api.close()
        server.close()
        await server.wait_closed()


def answer(status: int, body: bytes, *headers: str) -> bytes:
    head = "\r\n".join([f"HTTP/1.1 {status} X", f"Content-Length: {len(body)}", *headers])
    return head.encode() + b"\r\n\r\n" + body


async def test_requests_share_one_connection_and_carry_the_token() -> None:
    peers = set()

    async def script(n: int, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peers.add(writer.get_extra_info("peername"))
        writer.write(answer(200, b'{"n": %d}' % n))

    async with talking_to(script) as (api, requests):
        assert await api._call("POST", "/managers/hello", b"{}") == b'{"n": 1}'
        assert await api._call("GET", "/x") == b'{"n": 2}'
        assert len(peers) == 1
        assert requests[0].startswith(b"POST /deep/api/v1/managers/hello HTTP/1.1\r\n")
        assert b"\r\nAuthorization: Bearer t0k\r\n" in requests[0]
        assert requests[0].endswith(b"\r\n\r\n{}")


async def test_an_answer_in_pieces_or_chunks_is_put_together() -> None:
    async def script(n: int, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if n == 1:
            for byte in answer(200, b"whole"):
                writer.write(bytes([byte]))
                await writer.drain()
        else:
            writer.write(
                b"HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nwho\r\n2\r\nle\r\n0\r\n\r\n"
            )

    async with talking_to(script) as (api, _):
        assert await api._call("GET", "/x") == b"whole"
        assert await api._call("GET", "/x") == b"whole"


async def test_a_problem_document_becomes_its_error() -> None:
    documents = [
        (409, b'{"code": "lease_lost", "detail": "not yours"}', "X-A: b"),
        (503, b'{"code": "database_unavailable", "detail": "later"}', "Retry-After: 7"),
        (409, b'{"code": "invalid_transition", "detail": "no", "state": "gone"}', "X-A: b"),
    ]

    async def script(n: int, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        status, body, header = documents[n - 1]
        writer.write(answer(status, body, header, "Content-Type: application/problem+json"))

    async with talking_to(script) as (api, _):
        with pytest.raises(LeaseLost, match="not yours"):
            await api._call("GET", "/x")
        with pytest.raises(DatabaseUnavailable) as error:
            await api._call("GET", "/x")
        assert error.value.facts["retry_after_seconds"] == 7.0
        with pytest.raises(InvalidTransition) as transition:
            await api._call("GET", "/x")
        assert transition.value.facts["state"] == "gone"


@pytest.mark.spec("S000-126")
async def test_a_connection_that_ends_is_unavailable_and_then_opened_again() -> None:
    async def script(n: int, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if n == 1:
            writer.write(b"HTTP/1.1 200 X\r\nContent-Length: 100\r\n\r\nhalf")
            writer.close()
        else:
            writer.write(answer(200, b"again"))

    async with talking_to(script) as (api, _):
        with pytest.raises(ApiUnavailable):
            await api._call("GET", "/x")
        assert await api._call("GET", "/x") == b"again"


async def test_connection_close_is_obeyed() -> None:
    peers = set()

    async def script(n: int, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peers.add(writer.get_extra_info("peername"))
        writer.write(answer(200, b"bye", "Connection: close"))
        writer.close()

    async with talking_to(script) as (api, _):
        assert await api._call("GET", "/x") == b"bye"
        assert await api._call("GET", "/x") == b"bye"
        assert len(peers) == 2


async def test_silence_ends_after_the_timeout_and_garbage_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def script(n: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if n == 2:
            writer.write(b"220 mail server ready\r\n\r\n")

    async with talking_to(script) as (api, _):
        monkeypatch.setattr(api_calls, "ANSWER_SECONDS", 0.05)
        with pytest.raises(ApiUnavailable, match="in time"):
            await api._call("GET", "/x")
        monkeypatch.setattr(api_calls, "ANSWER_SECONDS", 5.0)
        with pytest.raises(ApiUnavailable, match="not HTTP"):
            await api._call("GET", "/x")


async def test_an_abandoned_request_does_not_spoil_the_next_answer() -> None:
    peers: list[object] = []

    async def script(n: int, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peers.append(writer.get_extra_info("peername"))
        if n == 2:
            late = [b"1"] if peers[0] == peers[1] else []  # the first answer, where it was asked
            for body in [*late, b"2"]:
                writer.write(answer(200, body))

    async with talking_to(script) as (api, requests):
        abandoned = asyncio.create_task(api._call("GET", "/x"))
        await wait_until_async(lambda: bool(requests))
        abandoned.cancel()
        with pytest.raises(asyncio.CancelledError):
            await abandoned
        assert await api._call("GET", "/x") == b"2"


async def test_nobody_there_is_unavailable() -> None:
    with pytest.raises(ApiUnavailable):
        await ApiCalls("http://127.0.0.1:1", "t", "test")._call("GET", "/x")


@pytest.mark.parametrize("url", ["", "127.0.0.1:80", "ftp://host", "http://"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match="must be http"):
        ApiCalls(url, "t", "test")


# --- backoff ----------------------------------------------------------------------------------------


@pytest.mark.spec("S000-126")
def test_delays_grow_to_a_limit_and_respect_what_the_api_says() -> None:
    for failures in range(7):
        assert 0.025 * 2**failures <= AGENT_POLICY.pause(failures) <= 0.05 * 2**failures
    assert 2.5 <= AGENT_POLICY.pause(30) <= 5.0
    assert AGENT_POLICY.pause(0, DatabaseUnavailable("later", retry_after_seconds=7.0)) == 7.0


def test_only_a_refusal_is_one() -> None:
    assert is_refusal(LeaseLost())
    assert not is_refusal(ApiUnavailable())
    assert not is_refusal(MitosisError("an unexpected 500"))


async def test_a_call_is_repeated_until_it_is_answered_or_refused() -> None:
    errors: list[MitosisError] = [ApiUnavailable(), MitosisError("a bug of the API"), LeaseLost()]

    async def call() -> None:
        raise errors.pop(0)

    with pytest.raises(LeaseLost):
        await until_reached(call)
    assert not errors
