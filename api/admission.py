"""Limits on concurrent requests and on the bytes of their bodies. The API refuses more with a 503."""

from typing import cast

from fastapi import Request
from starlette.types import Scope

from mitosis.contracts.errors import Overloaded

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
        self._max_requests, self._max_bytes = max_requests, max_body_bytes
        self.requests = self.body_bytes = 0

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

    def reserve(self, size: int) -> None:
        """Reserve memory for this many more bytes.

        Raises:
            Overloaded: the limit would be exceeded.
        """
        if self.body_bytes + size > self._max_bytes:
            raise Overloaded(
                f"the API holds bodies of {self.body_bytes:,} bytes; try again in a second"
            )
        self.body_bytes += size


class Admitted:
    """One admitted request."""

    def __init__(self, admission: Admission) -> None:
        self._admission = admission
        self._reserved = 0

    def grow(self, size: int) -> None:
        """Count more bytes of this request's body.

        Raises:
            Overloaded: the bodies of all requests are too large together.
        """
        self._admission.reserve(size)
        self._reserved += size

    def end(self) -> None:
        self._admission.requests -= 1
        self._admission.body_bytes -= self._reserved


def grow(request: Request, size: int) -> None:
    """Count more bytes of the body of ``request``.

    Raises:
        Overloaded: the bodies of all requests are too large together.
    """
    if (one := cast("Admitted | None", request.scope.get(_KEY))) is not None:
        one.grow(size)
