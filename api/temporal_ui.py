"""Temporal's Web UI behind the API: who may use it, and what of a request and an answer passes.

The UI itself has no login and accepts any Host header, so it listens on an address of this machine that a
page in a browser cannot guess. Here a browser needs a session, which an administrator opens with a code that
is good for one use; a page of another origin can neither get one nor use it.
"""

import hashlib
import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import httpx2
from starlette.requests import Request

from mitosis.contracts.accounts import User
from mitosis.contracts.errors import PermissionDenied, Unauthenticated

PATH = "/temporal"
COOKIE = "mitosis_ui"
CODE_SECONDS = 60.0
"""From the command that asks for a code to the browser that uses it."""
SESSION_SECONDS = 12 * 3600.0
KEPT = 1_000
"""Codes and sessions; the oldest go first."""

SAFE_METHODS = frozenset({"GET", "HEAD"})
_LOOPBACK = frozenset({"127.0.0.1", "::1"})
_NOT_SENT = frozenset(
    {
        *("host", "connection", "keep-alive", "transfer-encoding", "upgrade", "te", "trailer"),
        *("authorization", "cookie", "content-length", "expect", "forwarded", "origin", "referer"),
    }
)
"""Headers of a request that are the API's own business."""
_NOT_RETURNED = frozenset(
    {
        *("connection", "keep-alive", "transfer-encoding", "upgrade", "trailer", "server", "date"),
        *("access-control-allow-origin", "access-control-allow-credentials"),
    }
)
GUARDS = {"X-Frame-Options": "DENY", "Referrer-Policy": "same-origin", "Cache-Control": "no-store"}


@dataclass(frozen=True, slots=True)
class _Grant:
    """Whose a code or a session is; revoking the user's tokens ends it."""

    user: User
    until: float


class TemporalUi:
    """The sessions of one API process, and its connections to the UI."""

    def __init__(self, url: str, clock: Callable[[], float] = time.monotonic) -> None:
        """``url`` is the address of the UI, which serves below :data:`PATH`."""
        self._clock = clock
        self._codes: dict[str, _Grant] = {}
        self._sessions: dict[str, _Grant] = {}
        self.http = httpx2.AsyncClient(base_url=url, trust_env=False, timeout=30.0)

    def new_code(self, user: User) -> str:
        """Return a code that opens one session for this administrator."""
        return self._keep(self._codes, user, CODE_SECONDS)

    def open_session(self, code: str) -> str:
        """Use a code up; return the secret of a new session.

        Raises:
            Unauthenticated: it was used, is too old, or never was one.
        """
        grant = self._codes.pop(_digest(code), None)
        if grant is None or self._clock() > grant.until:
            raise Unauthenticated("get a new link with: mitosis ui", reason="code_invalid")
        return self._keep(self._sessions, grant.user, SESSION_SECONDS)

    def user_of(self, session: str) -> User:
        """Return the administrator who opened a session, as it was then.

        Raises:
            Unauthenticated: there is no such session.
        """
        grant = self._sessions.get(_digest(session))
        if grant is None or self._clock() > grant.until:
            raise Unauthenticated("get a link with: mitosis ui", reason="session_missing")
        return grant.user

    def _keep(self, where: dict[str, _Grant], user: User, seconds: float) -> str:
        secret = secrets.token_urlsafe(32)
        if len(where) >= KEPT:
            del where[next(iter(where))]
        where[_digest(secret)] = _Grant(user, self._clock() + seconds)
        return secret

    async def aclose(self) -> None:
        await self.http.aclose()


def check_origin(request: Request) -> None:
    """Check that the browser shows a page of this API: the Host it asked for, and the origin of changes.

    A page whose name was made to resolve to this machine sends that name as Host. A page of another port of
    this machine has the cookie too, since cookies ignore ports, and sends its own origin.

    Raises:
        PermissionDenied: it shows another page.
    """
    host = request.headers.get("host", "")
    if host not in own_hosts(request.scope.get("server")):
        raise PermissionDenied("this is reached by the address of the API only", field="Host")
    origin = request.headers.get("origin")
    strange = origin is not None and origin != f"{request.url.scheme}://{host}"
    site = request.headers.get("sec-fetch-site", "none")
    if strange or site not in ("same-origin", "none"):
        raise PermissionDenied("this is called by its own pages only", field="Origin")
    if request.method not in SAFE_METHODS and origin is None:
        raise PermissionDenied("this is called by its own pages only", field="Origin")


def own_hosts(server: tuple[str, int] | None) -> frozenset[str]:
    """Return the values of Host by which the listening address is reached; names are not looked up."""
    if server is None:
        return frozenset()
    address, port = server
    shown = f"[{address}]" if ":" in address else address
    names = {f"{shown}:{port}"}
    if address in _LOOPBACK:
        names.add(f"localhost:{port}")
    return frozenset(names)


RawHeaders = list[tuple[bytes, bytes]]
"""As bytes: a value may have almost any, and text cannot express all. Source: RFC 9110, section 5.5."""


def sent_headers(request: Request) -> RawHeaders:
    """Return the headers that the UI gets; its own cookies, but neither ours nor any token."""
    headers = [
        (name, value)
        for name, value in request.headers.raw
        if name.decode("latin-1").lower() not in _NOT_SENT
    ]
    cookies = [f"{name}={value}" for name, value in request.cookies.items() if name != COOKIE]
    return [*headers, (b"cookie", "; ".join(cookies).encode("latin-1"))] if cookies else headers


def returned_headers(headers: Iterable[tuple[bytes, bytes]]) -> RawHeaders:
    """Return the headers of an answer that the browser gets, with ours that keep the page to itself."""
    own = {name.lower() for name in GUARDS}
    kept = [
        (name, value)
        for name, value in headers
        if name.decode("latin-1").lower() not in _NOT_RETURNED | own
    ]
    return [*kept, *((name.encode(), value.encode()) for name, value in GUARDS.items())]


def session_cookie(session: str, *, secure: bool) -> Mapping[str, str]:
    """Return the header that gives a session to a browser."""
    flags = f"Path={PATH}; HttpOnly; SameSite=Strict; Max-Age={SESSION_SECONDS:.0f}"
    return {"Set-Cookie": f"{COOKIE}={session}; {flags}{'; Secure' if secure else ''}"}


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode(errors="replace")).hexdigest()
