"""Limits on concurrent requests and on the bytes of their bodies. The API refuses more with a 503.

The body of a request is not read before its token is checked. From then on the request counts to the share
of its user, manager or worker service; a login counts to the network that it comes from.
"""

from typing import cast

from starlette.requests import HTTPConnection
from starlette.types import Scope

from api.shares import Holder, Share
from mitosis.contracts.errors import Overloaded
from mitosis.store.pg.turns import CALLER

MAX_REQUESTS = 10_000
"""Concurrent requests, including long polls (one per host and one per watcher)."""
MAX_BODY_BYTES = 256_000_000
"""Total size of the bodies in memory: four of the largest size."""

_KEY = "mitosis.admission"


class Admission:
    """Counts the requests and body bytes of one server."""

    def __init__(
        self, max_requests: int = MAX_REQUESTS, max_body_bytes: int = MAX_BODY_BYTES
    ) -> None:
        self._max_requests = max_requests
        self.requests = 0
        self.shares = Share(max_requests)
        """The requests whose holder is known."""
        self.bodies = Share(max_body_bytes)

    def begin(self, scope: Scope) -> "Admitted":
        """Admit a request; the caller must call its ``end``.

        Raises:
            Overloaded: there are too many requests.
        """
        if self.requests >= self._max_requests:
            raise Overloaded(
                f"the API has {self.requests} concurrent requests; try again in a second"
            )
        self.requests += 1
        scope[_KEY] = one = Admitted(self)
        return one


class Admitted:
    """One admitted request."""

    def __init__(self, admission: Admission) -> None:
        self._admission = admission
        self._holder: Holder | None = None
        self._bytes = 0

    def charge(self, holder: Holder) -> None:
        """Count the request, and from now on its body and its connections, to the share of ``holder``.

        Raises:
            Overloaded: the holder has too many requests beside those of others.
        """
        shares = self._admission.shares
        if not shares.take(holder):
            raise Overloaded(
                f"you have {shares.held(holder)} concurrent requests, your share of all that the API takes;"
                " try again in a second"
            )
        self._holder = holder
        CALLER.set(holder)

    def grow(self, size: int) -> None:
        """Count more bytes of this request's body.

        Raises:
            Overloaded: the bodies of this holder are too large together, beside those of others.
        """
        if self._holder is None:
            raise RuntimeError("a body is read only when it is known whose request it is")
        bodies = self._admission.bodies
        if not bodies.take(self._holder, size):
            raise Overloaded(
                f"the API holds bodies of {bodies.used:,} bytes, {bodies.held(self._holder):,} of them yours;"
                " try again in a second"
            )
        self._bytes += size

    def end(self) -> None:
        self._admission.requests -= 1
        if self._holder is None:
            return
        self._admission.shares.give_back(self._holder)
        if self._bytes:
            self._admission.bodies.give_back(self._holder, self._bytes)


def charge(request: HTTPConnection, holder: Holder) -> None:
    """Count ``request`` to the share of ``holder``; a WebSocket counts as a stream only.

    Raises:
        Overloaded: the holder has too many requests beside those of others.
    """
    if (one := _admitted(request)) is not None:
        one.charge(holder)


def grow(request: HTTPConnection, size: int) -> None:
    """Count more bytes of the body of ``request``.

    Raises:
        Overloaded: the bodies of its holder are too large together, beside those of others.
    """
    if size and (one := _admitted(request)) is not None:
        one.grow(size)


def _admitted(request: HTTPConnection) -> Admitted | None:
    return cast("Admitted | None", request.scope.get(_KEY))
