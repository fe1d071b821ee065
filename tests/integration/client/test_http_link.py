"""The HTTP link below httpx2 against servers that behave, and servers that do not."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from threading import Event, Thread

import httpx2
import pytest

from mitosis.client.connection import Connection
from mitosis.client.http_link import HttpAddress
from mitosis.client.link_transport import LinkTransport
from tests.support.waiting import wait_until_async

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


class Server:
    """Answers every request on a connection by ``answers``, in turn; counts connections."""

    def __init__(self, *answers: bytes) -> None:
        self.answers = list(answers)
        self.connections = 0
        self.bodies: list[bytes] = []
        self.release = asyncio.Event()
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while self.answers:
                head = await reader.readuntil(b"\r\n\r\n")
                length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
                self.bodies.append(await reader.readexactly(int(length or b"0")))
                answer = self.answers.pop(0)
                if answer == b"wait":
                    await self.release.wait()
                    continue
                writer.write(answer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def running(*answers: bytes) -> AsyncIterator[tuple[Server, httpx2.AsyncClient]]:
    it = Server(*answers)
    server = await asyncio.start_server(it.serve, "127.0.0.1", 0)
    it.port = server.sockets[0].getsockname()[1]
    transport = LinkTransport(HttpAddress("127.0.0.1", it.port), connections=2, keep_alive=60.0)
    url = f"http://127.0.0.1:{it.port}"
    try:
        async with httpx2.AsyncClient(transport=transport, base_url=url, timeout=5) as client:
            yield it, client
    finally:
        it.release.set()
        server.close()
        await server.wait_closed()


async def test_a_connection_is_kept() -> None:
    async with running(OK, OK, OK, b"") as (server, client):
        for body in (b"", b"x", b"y" * 3_000_000):
            answer = await client.post("/path?a=b", content=body)
            assert (answer.status_code, answer.content) == (200, b"ok")
        assert server.connections == 1
        assert [len(body) for body in server.bodies] == [0, 1, 3_000_000]


async def test_answers_in_pieces_chunked_and_empty() -> None:
    chunked = (
        b"HTTP/1.1 201 Created\r\ntransfer-encoding: chunked\r\nx-a: 1\r\n\r\n"
        b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
    )
    async with running(chunked, b"HTTP/1.1 204 No Content\r\n\r\n", OK, b"") as (server, client):
        answer = await client.get("/")
        assert (answer.status_code, answer.content) == (201, b"abcde")
        assert answer.headers["x-a"] == "1"
        assert (await client.get("/")).status_code == 204
        assert (await client.get("/")).content == b"ok"
        assert server.connections == 1


async def test_a_server_that_closes_is_connected_to_again() -> None:
    close = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
    async with running(close, OK, b"") as (server, client):
        await client.get("/")
        await client.get("/")
        assert server.connections == 2


async def test_a_connection_that_the_server_ended_while_idle_is_not_used() -> None:
    async with running(OK) as (server, client):  # it closes after its last answer
        await client.get("/")
        server.answers.append(OK)
        link = client._transport.links._idle[0]  # type: ignore[attr-defined]
        await wait_until_async(lambda: not link.usable)
        assert (await client.get("/")).content == b"ok"
        assert server.connections == 2


@pytest.mark.parametrize("answer", [b"SSH-2.0-OpenSSH\r\n", b"HTTP/1.1 200 OK\r\ncont"])
async def test_what_is_no_answer_is_an_error(answer: bytes) -> None:
    async with running(answer) as (_, client):
        with pytest.raises(httpx2.RemoteProtocolError):
            await client.get("/")


async def test_a_late_answer_is_not_taken_for_the_next_one() -> None:
    async with running(b"wait", OK, b"") as (server, client):
        with pytest.raises(httpx2.ReadTimeout):
            await client.get("/", timeout=0.1)
        asking = asyncio.create_task(client.get("/"))
        await wait_until_async(lambda: server.connections == 2)
        assert (await asking).content == b"ok"


async def test_a_call_given_up_frees_its_connection() -> None:
    async with running(b"wait", b"wait", OK, b"") as (server, client):
        asking = [asyncio.create_task(client.get("/")) for _ in range(2)]
        await wait_until_async(lambda: len(server.bodies) == 2)
        for call in asking:
            call.cancel()
        await asyncio.wait(asking)
        assert (await client.get("/")).content == b"ok"


async def test_no_more_connections_than_allowed() -> None:
    async with running(*[OK] * 20, b"") as (server, client):
        await asyncio.gather(*(client.get("/") for _ in range(20)))
        assert server.connections <= 2


async def test_nobody_there() -> None:
    async with running() as (server, client):
        port = server.port
    transport = LinkTransport(HttpAddress("127.0.0.1", port), connections=1, keep_alive=86_400.0)
    async with httpx2.AsyncClient(transport=transport) as client:
        with pytest.raises(httpx2.ConnectError):
            await client.get(f"http://127.0.0.1:{port}")


async def test_what_goes_over_the_link_and_what_is_left_to_httpx2(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("http_proxy", "http://proxy.test:3128")
    for url, by_link in (
        ("http://127.0.0.1:1", True),
        ("http://localhost:1", True),
        ("http://api.test", False),
        ("https://127.0.0.1:1", False),
    ):
        async with Connection(url) as connection:
            assert isinstance(connection._http._transport, LinkTransport) == by_link, url
    monkeypatch.delenv("http_proxy")
    async with Connection("http://api.test") as connection:
        assert isinstance(connection._http._transport, LinkTransport)


def test_an_address_names_host_port_and_prefix() -> None:
    assert HttpAddress.parse("https://host/a/") == HttpAddress("host", 443, True, "/a")
    assert HttpAddress.parse("http://[::1]:8000").host_header == "[::1]:8000"


async def test_an_informational_answer_is_not_the_answer() -> None:
    hints = b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n"
    async with running(hints + OK, OK, b"") as (server, client):
        answer = await client.get("/")
        assert (answer.status_code, answer.content) == (200, b"ok")
        assert "link" not in answer.headers
        assert (await client.get("/")).content == b"ok"
        assert server.connections == 1


async def test_an_answer_that_was_not_asked_for_ends_the_connection() -> None:
    async with running(OK, OK, b"") as (server, client):
        await client.get("/")
        (link,) = client._transport.links._idle  # type: ignore[attr-defined]
        link.data_received(b"HTTP/1.1 408 Request Timeout\r\n\r\n")
        assert not link.usable
        assert (await client.get("/")).content == b"ok"
        assert server.connections == 2


def test_a_connection_that_ended_while_nobody_looked_is_not_used() -> None:
    """The event loop of a plain program stands still between its calls."""
    with socket.create_server(("127.0.0.1", 0)) as listener, asyncio.Runner() as runner:
        port = listener.getsockname()[1]
        transport = LinkTransport(
            HttpAddress("127.0.0.1", port), connections=1, keep_alive=86_400.0
        )
        client = httpx2.AsyncClient(transport=transport, base_url=f"http://127.0.0.1:{port}")
        for _ in range(3):
            answered = Event()
            answering = Thread(target=_answer_once, args=(listener, answered), daemon=True)
            answering.start()
            assert runner.run(client.get("/")).content == b"ok"
            answered.set()
            answering.join()
        runner.run(client.aclose())


def _answer_once(listener: socket.socket, answered: Event) -> None:
    listener.settimeout(10)
    accepted, _ = listener.accept()
    with accepted:
        accepted.recv(65536)
        accepted.sendall(OK)
        answered.wait(20)
