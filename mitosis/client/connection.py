"""Makes calls to one API with one token, each exactly once.

Owns URLs, headers, timeouts and the mapping of answers to errors. Callers repeat calls: they know
whether that is safe.
"""

from collections.abc import AsyncGenerator
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar
from urllib.request import getproxies

import httpx2
import msgspec
from pydantic import BaseModel

from mitosis.client.http_link import API_PREFIX, KEEP_ALIVE_SECONDS, HttpAddress
from mitosis.client.link_transport import LinkTransport
from mitosis.client.problems import error_from
from mitosis.client.trust import is_loopback, passes, refusal, refused_certificate, trusting
from mitosis.contracts.errors import ApiUnavailable, ConfigurationError, MitosisError
from mitosis.unix_socket import HOST, check_folder, socket_of
from mitosis.version import __version__

SILENCE = timedelta(seconds=50)
"""Without data for this long a stream is broken: it sends a comment every 15 s."""
CLOSED = "this client has been closed: use it, and its task groups, inside its own with block"
MAX_EVENT_BYTES = 64_000_000
"""More than the largest result with its output."""

Params = dict[str, str | int | float | bool | list[str]]
M = TypeVar("M", bound=BaseModel)
S = TypeVar("S", bound=msgspec.Struct)


class Connection:
    """A connection to one API. Safe to share between tasks of one event loop."""

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        timeout: timedelta = timedelta(seconds=20),
        max_connections: int = 8,
        ca_file: Path | None = None,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        """Make no connection yet. ``url``: ``http(s)://host[:port]`` or ``unix:/path``.

        ``timeout`` limits one call, without the time that the API is asked to wait. ``ca_file``:
        certificates to trust instead of the system's.

        Raises:
            ConfigurationError: ``ca_file`` cannot be used, or the path is not absolute.
        """
        self.url = url.rstrip("/")
        self._socket = socket_of(self.url)
        self._base_url = self.url if self._socket is None else f"http://{HOST}"
        self._timeout = timeout.total_seconds()
        self._ca_file = ca_file
        self._trusted = trusting(ca_file) if self.url.startswith("https:") else True
        self._http = httpx2.AsyncClient(
            base_url=self._base_url,
            headers={"User-Agent": f"mitosis/{__version__}", "Accept": "application/json"},
            limits=httpx2.Limits(
                max_connections=max_connections, keepalive_expiry=KEEP_ALIVE_SECONDS
            ),
            timeout=self._timeout,
            transport=transport or self._link_transport(max_connections),
            verify=self._trusted,
            trust_env=not is_loopback(self.url),
        )
        self._streams: httpx2.AsyncClient | None = None
        self.set_token(token)

    def set_token(self, token: str | None) -> None:
        """Send this token from now on; None: send no token."""
        self._http.headers.pop("Authorization", None)
        if token:
            self._http.headers["Authorization"] = f"Bearer {token}"

    def set_header(self, name: str, value: str) -> None:
        """Send this header from now on."""
        self._http.headers[name] = value

    async def call(
        self,
        method: str,
        path: str,
        body: BaseModel | msgspec.Struct | None = None,
        *,
        params: Params | None = None,
        wait_seconds: float = 0.0,
    ) -> bytes:
        """Make one call below ``/api/v1`` and return the body of its answer.

        Raises:
            MitosisError: the class that the API's problem document names; MitosisError itself: the
                client is closed.
            ApiUnavailable: no answer; the call may have had an effect.
            ConfigurationError: the certificate of the API is not trusted.
        """
        if self._http.is_closed:
            raise MitosisError(CLOSED)
        timeout = self._timeout + wait_seconds
        try:
            answer = await self._http.request(
                method,
                API_PREFIX + path,
                content=_encode(body),
                headers={"Content-Type": "application/json"} if body is not None else None,
                params=params,
                timeout=httpx2.Timeout(timeout, connect=min(timeout, 5.0)),
            )
        except httpx2.TransportError as error:
            raise self._unreachable(error) from error
        if answer.is_success:
            return answer.content
        raise error_from(answer.status_code, answer.headers, answer.content)

    async def events(
        self, path: str, params: Params, last_event_id: str = ""
    ) -> AsyncGenerator[httpx2.ServerSentEvent]:
        """Yield the Server-Sent Events of one connection below ``/api/v1``, until the API ends it.

        Raises:
            MitosisError: the class that the API's problem document names.
            ApiUnavailable: the connection failed or broke, or no data came for 50 s.
            ConfigurationError: the certificate of the API is not trusted.
        """
        token = self._http.headers.get("Authorization")
        headers = {} if token is None else {"Authorization": token}
        if last_event_id:
            headers["Last-Event-ID"] = last_event_id
        try:
            async with self._streaming().sse(
                API_PREFIX + path, params=params, headers=headers, max_event_size=MAX_EVENT_BYTES
            ) as source:
                answer = source.response
                if not answer.is_success:
                    raise error_from(answer.status_code, answer.headers, await answer.aread())
                async for event in source:
                    yield event
        except (httpx2.TransportError, httpx2.SSEError, OSError) as error:
            raise self._unreachable(error) from error

    async def model(
        self,
        answer: type[M],
        method: str,
        path: str,
        body: BaseModel | None = None,
        *,
        params: Params | None = None,
        wait_seconds: float = 0.0,
    ) -> M:
        """Make a call; return its answer as a pydantic model."""
        content = await self.call(method, path, body, params=params, wait_seconds=wait_seconds)
        return answer.model_validate_json(content)

    async def struct(
        self,
        answer: type[S],
        method: str,
        path: str,
        body: msgspec.Struct,
        *,
        wait_seconds: float = 0.0,
    ) -> S:
        """Make a hot call; body and answer are msgspec structs."""
        content = await self.call(method, path, body, wait_seconds=wait_seconds)
        return msgspec.json.decode(content, type=answer)

    def _streaming(self) -> httpx2.AsyncClient:
        """Return a client over httpx2's transport, which can stream; made when first used.

        Raises:
            OSError: another user can have made the unix socket.
        """
        if self._socket is not None:
            check_folder(self._socket)
        if self._streams is None:
            uds = None if self._socket is None else str(self._socket)
            self._streams = httpx2.AsyncClient(
                base_url=self._base_url,
                transport=None if uds is None else httpx2.AsyncHTTPTransport(uds=uds),
                headers={"User-Agent": f"mitosis/{__version__}"},
                timeout=httpx2.Timeout(self._timeout, connect=5.0, read=SILENCE.total_seconds()),
                verify=self._trusted,
                trust_env=not is_loopback(self.url),
            )
        return self._streams

    def _link_transport(self, connections: int) -> LinkTransport | None:
        """Return a transport for plain HTTP without a proxy; None: use the transport of httpx2."""
        if self._socket is not None:
            return LinkTransport(HttpAddress.over(self._socket), connections=connections)
        parts = httpx2.URL(self.url)
        if parts.scheme != "http" or (getproxies() and not is_loopback(self.url)):
            return None
        return LinkTransport(HttpAddress(parts.host, parts.port or 80), connections=connections)

    def _unreachable(self, error: Exception) -> ApiUnavailable | ConfigurationError:
        if refused := refused_certificate(error):
            text = refusal(self.url, refused, self._ca_file)
            if passes(refused):
                return ApiUnavailable(text)
            return ConfigurationError(text, field="api.ca_file")
        what = f"{type(error).__name__} {error}".rstrip()
        return ApiUnavailable(f"the API at {self.url} cannot be reached: {what}")

    async def aclose(self) -> None:
        await self._http.aclose()
        if self._streams is not None:
            await self._streams.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()


def _encode(body: BaseModel | msgspec.Struct | None) -> bytes | None:
    if body is None:
        return None
    if isinstance(body, msgspec.Struct):
        return msgspec.json.encode(body)
    return body.model_dump_json(exclude_unset=True).encode()
