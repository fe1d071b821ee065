"""The HTTP link as a transport of httpx2, for short calls over plain HTTP."""

import httpx2

from mitosis.client import http_link
from mitosis.client.http_link import HttpAddress, HttpLinks, HttpRequest, LinkError

_ERRORS: dict[type[LinkError], type[httpx2.TransportError]] = {
    http_link.ConnectFailed: httpx2.ConnectError,
    http_link.ConnectTimedOut: httpx2.ConnectTimeout,
    http_link.AnswerTimedOut: httpx2.ReadTimeout,
    http_link.AnswerBroken: httpx2.RemoteProtocolError,
}


class LinkTransport(httpx2.AsyncBaseTransport):
    """A few kept-alive connections to one server."""

    def __init__(
        self,
        address: HttpAddress,
        *,
        connections: int,
        keep_alive: float = http_link.KEEP_ALIVE_SECONDS,
    ) -> None:
        self.links = HttpLinks(address, most=connections, keep_alive=keep_alive)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Make one call; the body of ``request`` is in memory.

        Raises:
            httpx2.TransportError: there was no answer, or none in time.
        """
        timeouts = request.extensions.get("timeout", {})
        whole = HttpRequest(
            request.method.encode(), request.url.raw_path, request.headers.raw, request.content
        )
        try:
            answer = await self.links.call(
                whole,
                connect_seconds=timeouts.get("connect"),
                answer_seconds=timeouts.get("read"),
            )
        except LinkError as error:
            raise _ERRORS[type(error)](str(error)) from error
        return httpx2.Response(answer.status, headers=answer.headers, content=answer.body)

    async def aclose(self) -> None:
        self.links.close()
