"""Makes the calls of processes that call the API all their life: agents and worker services.

Each call is made once; callers own clocks and retries. Calls that run at the same time use connections of
their own, so one that waits for work never holds up a report or a renewal.
"""

from pathlib import Path
from typing import Protocol, TypeVar

import msgspec
from pydantic import BaseModel, ValidationError

from mitosis.client.http_link import (
    API_PREFIX,
    Header,
    HttpAddress,
    HttpAnswer,
    HttpLinks,
    HttpRequest,
    LinkError,
)
from mitosis.client.problems import error_from
from mitosis.contracts.errors import ApiUnavailable, InvalidRequest
from mitosis.contracts.request_fields import RequestFields, encoded
from mitosis.version import __version__

CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 15.0
SLOWEST_BYTES_PER_SECOND = 200_000
"""A call may take longer for its body: a slow network carries a large one, but late."""
MOST_CONNECTIONS = 32
"""More than the concurrent calls of an agent: five, and two for each command of Temporal."""

M = TypeVar("M", bound=BaseModel)
S = TypeVar("S", bound=msgspec.Struct)


class Links(Protocol):
    """Makes calls; :class:`HttpLinks`, or a server in the same process."""

    async def call(
        self, request: HttpRequest, *, connect_seconds: float | None, answer_seconds: float | None
    ) -> HttpAnswer: ...

    def close(self) -> None: ...


class ApiCalls:
    """Base of the API as one process sees it.

    Every method raises a :class:`~mitosis.contracts.errors.MitosisError`: ``ApiUnavailable`` without an
    answer, ``DatabaseUnavailable`` while PostgreSQL is away, ``Unauthenticated`` for a token that is no
    longer valid, and the errors that the method names. After an error without an answer the call may have
    had its effect; all calls may be repeated as they are.
    """

    def __init__(
        self,
        url: str,
        token: str,
        name: str,
        links: Links | None = None,
        ca_file: Path | None = None,
    ) -> None:
        """Make no connection yet; ``name`` is that of the program, ``ca_file`` as in :class:`HttpLinks`.

        An empty token is none.

        Raises:
            ConfigurationError: ``url`` is not ``http(s)://host[:port][/prefix]``, or ``ca_file`` cannot
                be used.
        """
        address = HttpAddress.parse(url)
        self._links = links or HttpLinks(address, most=MOST_CONNECTIONS, ca_file=ca_file)
        self._prefix = f"{address.prefix}{API_PREFIX}"
        self._listed: RequestFields = {}
        self._headers: list[Header] = [
            (b"Host", address.host_header.encode()),
            *_authorization(token),
            (b"User-Agent", f"{name}/{__version__}".encode()),
            (b"Accept", b"application/json"),
            (b"Content-Type", b"application/json"),
        ]

    def use_token(self, token: str) -> None:
        """Make the calls from now on with this token; an empty one is none."""
        others = [header for header in self._headers if header[0] != b"Authorization"]
        self._headers = [*others, *_authorization(token)]

    def close(self) -> None:
        """Close the connections."""
        self._links.close()

    def _set_header(self, name: bytes, value: bytes) -> None:
        self._headers = [header for header in self._headers if header[0] != name] + [(name, value)]

    async def _model(
        self, answer: type[M], method: str, path: str, body: BaseModel | None = None
    ) -> M:
        content = await self._send(method, path, body)
        try:
            return answer.model_validate_json(content)
        except ValidationError as error:
            raise _not_ours(error) from None

    async def _struct(
        self,
        answer: msgspec.json.Decoder[S],
        path: str,
        body: msgspec.Struct,
        wait_seconds: float = 0.0,
    ) -> S:
        content = await self._send("POST", path, body, wait_seconds)
        try:
            return answer.decode(content)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise _not_ours(error) from None

    async def _send(
        self,
        method: str,
        path: str,
        body: msgspec.Struct | BaseModel | None,
        wait_seconds: float = 0.0,
    ) -> bytes:
        """Make one call with the fields that the API has listed.

        If it refuses them, an API of an earlier version has taken over: repeat the call with the first ones.
        """
        if body is None:
            return await self._call(method, path)
        content = encoded(body, self._listed)
        try:
            return await self._call(method, path, content, wait_seconds)
        except InvalidRequest:
            least = encoded(body, {})
            if least == content:
                raise
            self._listed = {}
            return await self._call(method, path, least, wait_seconds)

    async def _call(
        self, method: str, path: str, body: bytes = b"", wait_seconds: float = 0.0
    ) -> bytes:
        """Make one call below ``/api/v1`` and return the body of its 2xx answer."""
        headers = [*self._headers, (b"Content-Length", b"%d" % len(body))]
        target = f"{self._prefix}{path}".encode()
        try:
            answer = await self._links.call(
                HttpRequest(method.encode(), target, headers, body),
                connect_seconds=CONNECT_SECONDS,
                answer_seconds=ANSWER_SECONDS + wait_seconds + len(body) / SLOWEST_BYTES_PER_SECOND,
            )
        except LinkError as error:
            raise ApiUnavailable(f"no answer from the API: {error}") from None
        if 200 <= answer.status < 300:
            return answer.body
        names = {name.decode("latin-1").lower(): value for name, value in answer.headers}
        texts = {name: value.decode("latin-1") for name, value in names.items()}
        raise error_from(answer.status, texts, answer.body)


def _not_ours(error: Exception) -> ApiUnavailable:
    return ApiUnavailable(f"the answer is not one of this API: {error}")


def _authorization(token: str) -> list[Header]:
    return [(b"Authorization", b"Bearer " + token.encode())] if token else []
