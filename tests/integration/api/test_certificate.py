"""The API over TLS: whom a client trusts, what a new certificate changes, and what bounds a handshake."""

import asyncio
import contextlib
import json
import logging
import socket
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import pytest

import api.server
from api.bounded_protocol import BoundedProtocol
from api.certificate import CertificateFiles, ServedCertificate
from api.server import EmbeddedServer, serving
from manager_agent.agent_api import AgentApi
from mitosis.client.connection import Connection
from mitosis.client.repeating import repeating
from mitosis.client.service_api import ServiceApi
from mitosis.client.trust import trusting
from mitosis.contracts.errors import ApiUnavailable, ConfigurationError
from tests.support.certificates import (
    DAY,
    NOW,
    authority,
    edwards,
    elliptic,
    pem,
    private,
    self_signed,
    trusting_all,
)
from tests.support.waiting import wait_until_async

GET = b"GET / HTTP/1.1\r\nhost: api.test\r\n\r\n"


async def answer(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """An application: the scheme of the request as JSON, or as the only event of a stream."""
    body = json.dumps({"scheme": scope["scheme"]}).encode()
    kind = b"application/json"
    if scope["path"].endswith("/events"):
        body, kind = b"data: " + body + b"\n\n", b"text/event-stream"
    length = str(len(body)).encode()
    headers = [(b"content-type", kind), (b"content-length", length)]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def served(certificate: ServedCertificate, **more: Any) -> Any:
    return serving(cast("Any", answer), tls=certificate.context, **more)


def self_made(folder: Path, key: Any, **dates: Any) -> CertificateFiles:
    """Files of a certificate that is its own authority."""
    certificate = private(folder / "certificate.pem", self_signed(key, **dates))
    return CertificateFiles(certificate, private(folder / "key.pem", pem(key)))


@asynccontextmanager
async def linked(url: str) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(
        parts.hostname, parts.port, ssl=trusting_all(), server_hostname=""
    )
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


def shown(writer: asyncio.StreamWriter) -> bytes:
    """The certificate that the server has shown on this connection."""
    link = writer.get_extra_info("ssl_object")
    return cast("bytes", link.getpeercert(binary_form=True))


async def shown_now(url: str) -> bytes:
    async with linked(url) as (_, writer):
        return shown(writer)


def der(pem_bytes: bytes) -> bytes:
    return ssl.PEM_cert_to_DER_cert(pem_bytes.decode())


async def test_calls_streams_and_the_links_of_agents_and_services_trust_the_authority_of_the_deployment(
    tmp_path: Path,
) -> None:
    own = authority(tmp_path / "data")
    async with served(ServedCertificate(own.files(), NOW)) as url:
        assert url.startswith("https://127.0.0.1:")
        async with Connection(url, ca_file=own.ca_file) as connection:
            assert json.loads(await connection.call("GET", "/any")) == {"scheme": "https"}
            events = [one async for one in connection.events("/events", {})]
            assert [json.loads(one.data) for one in events] == [{"scheme": "https"}]
        for kind in (AgentApi, ServiceApi):
            lasting = kind(url, "token", ca_file=own.ca_file)
            assert json.loads(await lasting._call("GET", "/any")) == {"scheme": "https"}
            lasting.close()


async def test_a_client_that_does_not_trust_it_says_so_at_once_and_which_setting_it_needs(
    tmp_path: Path,
) -> None:
    own, other = authority(tmp_path / "data"), authority(tmp_path / "other")
    other.renew(NOW)
    async with served(ServedCertificate(own.files(), NOW)) as url:
        for ca_file in (None, other.ca_file):
            async with Connection(url, ca_file=ca_file) as connection:
                for call in (
                    lambda: repeating(lambda: connection.call("GET", "/"), timedelta(minutes=5)),
                    lambda: anext(connection.events("/events", {})),
                ):
                    with pytest.raises(ConfigurationError) as refused:
                        await call()
                    text = str(refused.value)
                    assert f"the certificate of the API at {url} is not trusted" in text
                    assert str(ca_file or "api.ca_file is not set") in text
                    assert "MITOSIS_API__CA_FILE" in text
        agent = AgentApi(url, "token", ca_file=other.ca_file)
        with pytest.raises(ApiUnavailable, match=r"not trusted: .*api\.ca_file is .*other"):
            await agent._call("GET", "/any")
        other.ca_file.write_bytes(own.ca_file.read_bytes())  # and a running agent reads it again
        with pytest.raises(ApiUnavailable):
            await agent._call("GET", "/any")
        assert await agent._call("GET", "/any")
        agent.close()


async def test_another_host_of_the_same_authority_is_refused(tmp_path: Path) -> None:
    key = elliptic()
    files = self_made(tmp_path, key)
    files.certificate.write_bytes(self_signed(key, "other.test"))
    async with (
        served(ServedCertificate(files, NOW)) as url,
        Connection(url, ca_file=files.certificate) as connection,
    ):
        with pytest.raises(ConfigurationError, match=r"not trusted: .*127\.0\.0\.1"):
            await connection.call("GET", "/")


@pytest.mark.parametrize("content", [None, b"no certificate"])
def test_a_file_of_authorities_that_cannot_be_used_is_named(
    tmp_path: Path, content: bytes | None
) -> None:
    path = tmp_path / "ca.pem"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigurationError, match=rf"api\.ca_file: cannot use {path}: "):
        trusting(path)


@pytest.mark.spec("S000-130")
async def test_a_new_certificate_is_for_new_connections_and_open_ones_go_on(tmp_path: Path) -> None:
    """Also from one kind of key to another: a context would keep both, and choose the older one."""
    files = self_made(tmp_path, elliptic())
    first = der(files.certificate.read_bytes())
    certificate = ServedCertificate(files, NOW)
    async with served(certificate) as url, linked(url) as (reader, writer):
        assert shown(writer) == first
        key = edwards()
        files.key.write_bytes(pem(key))
        certificate.look(NOW)  # between the writes of the two files
        assert await shown_now(url) == first
        files.certificate.write_bytes(self_signed(key))
        certificate.look(NOW)
        assert await shown_now(url) == der(files.certificate.read_bytes()) != first
        writer.write(GET)
        assert (await reader.readuntil(b"}")).startswith(b"HTTP/1.1 200")


@pytest.mark.spec("S000-130")
async def test_an_own_certificate_is_issued_again_before_it_ends_and_while_the_api_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr("api.certificate.LOOK_SECONDS", 0.01)
    own = authority(tmp_path / "data")
    certificate = ServedCertificate(own.files(), NOW - 85 * DAY)  # when it had 90 days
    async with served(certificate) as url, certificate.watched():
        first = NOW + 5 * DAY
        await wait_until_async(lambda: certificate.expires_at > first + 84 * DAY)
        async with Connection(url, ca_file=own.ca_file) as connection:
            assert await connection.call("GET", "/")
    assert caplog.messages.count("certificate.loaded") == 1


@pytest.mark.spec("S000-130")
async def test_clients_wait_for_the_next_certificate_when_one_has_expired(tmp_path: Path) -> None:
    key = elliptic()
    files = self_made(tmp_path, key, ends=NOW - DAY)
    certificate = ServedCertificate(files, NOW)
    async with served(certificate) as url:
        async with Connection(url, ca_file=files.certificate) as connection:
            with pytest.raises(ApiUnavailable, match="certificate has expired"):
                await connection.call("GET", "/")
            files.certificate.write_bytes(self_signed(key))
            certificate.look(NOW)
        async with Connection(url, ca_file=files.certificate) as connection:
            assert await connection.call("GET", "/")


# --- bounds -----------------------------------------------------------------------------------------


async def closed(reader: asyncio.StreamReader) -> None:
    async with asyncio.timeout(20):
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""


async def test_peers_without_a_handshake_and_without_a_request_are_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(EmbeddedServer, "handshake_seconds", 0.1)
    for name in ("look_seconds", "head_seconds"):
        monkeypatch.setattr(BoundedProtocol, name, 0.1)
    certificate = ServedCertificate(self_made(tmp_path, elliptic()), NOW)
    async with served(certificate) as url, linked(url) as (silent, _):
        port = urlsplit(url).port
        without_handshake, writer = await asyncio.open_connection("127.0.0.1", port)
        await closed(without_handshake)
        await closed(silent)
        writer.close()


async def test_connections_count_before_their_handshake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api.server, "most_connections", lambda: 4)
    certificate = ServedCertificate(self_made(tmp_path, elliptic()), NOW)
    async with served(certificate) as url, linked(url):
        port = urlsplit(url).port
        with socket.create_connection(("127.0.0.1", port or 0)):
            third, writer = await asyncio.open_connection("127.0.0.1", port)
            await closed(third)
            writer.close()

        async def answered() -> bool:
            with contextlib.suppress(OSError):
                return bool(await shown_now(url))
            return False

        await wait_until_async(answered)


async def test_a_stop_does_not_wait_for_the_end_of_tls_of_a_silent_peer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api.server, "TLS_END_SECONDS", 0.1)
    certificate = ServedCertificate(self_made(tmp_path, elliptic()), NOW)
    async with served(certificate, stop_after=timedelta(seconds=60)) as url:
        port = urlsplit(url).port
        plain = await asyncio.to_thread(socket.create_connection, ("127.0.0.1", port or 0))
        link = await asyncio.to_thread(trusting_all().wrap_socket, plain)
        began = time.monotonic()
    with link:
        assert time.monotonic() - began < 20
