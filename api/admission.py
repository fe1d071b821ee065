"""How much the API takes on at the same time: requests, and bytes of their bodies. More is asked to wait."""

from typing import cast

from fastapi import Request
from starlette.types import Scope

from mitosis.contracts.errors import Overloaded

MAX_REQUESTS = 10_000
"""Under way at the same time, those that wait for something (one per host, and per watcher) among them."""
MAX_BODY_BYTES = 256_000_000
"""Of all bodies that are being read or worked on: four of the largest kind."""

_KEY = "mitosis.admission"


class Admission:
    """One server's account of what it has taken on."""

    def __init__(
        self, max_requests: int = MAX_REQUESTS, max_body_bytes: int = MAX_BODY_BYTES
    ) -> None:
        self._max_requests, self._max_bytes = max_requests, max_body_bytes
        self.requests = self.body_bytes = 0

    def begin(self, scope: Scope) -> "Admitted":
        """Take on a request; its ``end`` must be called.

        Raises:
            Overloaded: there are too many.
        """
        if self.requests >= self._max_requests:
            raise Overloaded(f"{self.requests} requests are under way; try again in a second")
        self.requests += 1
        scope[_KEY] = one = Admitted(self)
        return one

    def reserve(self, size: int) -> None:
        """Room for so many more bytes.

        Raises:
            Overloaded: there is none.
        """
        if self.body_bytes + size > self._max_bytes:
            raise Overloaded(
                f"bodies with {self.body_bytes:,} bytes are being worked on; try again in a second"
            )
        self.body_bytes += size


class Admitted:
    """One request that was taken on."""

    def __init__(self, admission: Admission) -> None:
        self._admission = admission
        self._reserved = 0

    def grow(self, size: int) -> None:
        """See :meth:`Admission.reserve`."""
        self._admission.reserve(size)
        self._reserved += size

    def end(self) -> None:
        self._admission.requests -= 1
        self._admission.body_bytes -= self._reserved


def grow(request: Request, size: int) -> None:
    """Count more bytes of the body of ``request``.

    Raises:
        Overloaded: all bodies together are too large.
    """
    if (one := cast("Admitted | None", request.scope.get(_KEY))) is not None:
        one.grow(size)
