"""Sessions of Temporal's Web UI, and what may be sent to it, without sockets."""

from collections.abc import AsyncIterator
from uuid import uuid4

import httpx2
import pytest
from starlette.requests import Request

from api.temporal_ui import (
    CODE_SECONDS,
    KEPT,
    SESSION_SECONDS,
    TemporalUi,
    check_origin,
    returned_headers,
    sent_headers,
    session_cookie,
)
from mitosis.contracts.accounts import User
from mitosis.contracts.errors import PermissionDenied, Unauthenticated

ADMIN = User(uuid4(), "admin", True, 1, {})
OWN = "127.0.0.1:8000"


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def ui(clock: Clock) -> AsyncIterator[TemporalUi]:
    one = TemporalUi("http://127.1.2.3:9", clock)
    yield one
    await one.aclose()


async def test_a_code_opens_one_session_and_only_soon(ui: TemporalUi, clock: Clock) -> None:
    code = ui.new_code(ADMIN)
    session = ui.open_session(code)
    assert ui.user_of(session) == ADMIN
    with pytest.raises(Unauthenticated):
        ui.open_session(code)
    late = ui.new_code(ADMIN)
    clock.now = CODE_SECONDS + 1
    for used in (code, late, session, "", "x" * 10_000, "\ud800"):
        with pytest.raises(Unauthenticated):
            ui.open_session(used)
    clock.now = SESSION_SECONDS + 1
    for wrong in (session, code, ""):
        with pytest.raises(Unauthenticated):
            ui.user_of(wrong)


async def test_codes_and_sessions_are_bounded(ui: TemporalUi) -> None:
    first = ui.open_session(ui.new_code(ADMIN))
    last = first
    for _ in range(KEPT):
        last = ui.open_session(ui.new_code(ADMIN))
    with pytest.raises(Unauthenticated):
        ui.user_of(first)
    assert ui.user_of(last) == ADMIN


def request(method: str = "GET", host: str = OWN, **headers: str) -> Request:
    given = {"host": host, **{name.replace("_", "-"): value for name, value in headers.items()}}
    raw = [(name.encode(), value.encode()) for name, value in given.items()]
    return Request(
        {
            "type": "http",
            "method": method,
            "scheme": "http",
            "server": ("127.0.0.1", 8000),
            "path": "/temporal/",
            "query_string": b"",
            "headers": raw,
        }
    )


@pytest.mark.parametrize(
    "good",
    [
        request(),
        request(host="localhost:8000"),
        request(sec_fetch_site="none"),
        request("POST", origin=f"http://{OWN}", sec_fetch_site="same-origin"),
    ],
)
def test_a_page_of_the_api_may(good: Request) -> None:
    check_origin(good)


@pytest.mark.parametrize(
    "bad",
    [
        request(host="evil.example:8000"),
        request(host="evil.example"),
        request(host="127.0.0.1"),
        request(host="127.0.0.1:8001"),
        request(host=""),
        request(host="localhost:8000@evil.example"),
        request(sec_fetch_site="cross-site"),
        request(sec_fetch_site="same-site"),
        request(origin="http://127.0.0.1:8001"),
        request("POST"),
        request("POST", origin="null"),
        request("POST", origin="http://evil.example"),
        request("POST", host="evil.example", origin="http://evil.example"),
        request("POST", host="localhost:8000", origin=f"http://{OWN}"),
        request("DELETE", origin="https://127.0.0.1:8000"),
    ],
)
def test_a_page_of_another_name_port_or_scheme_may_not(bad: Request) -> None:
    with pytest.raises(PermissionDenied):
        check_origin(bad)


def test_neither_tokens_nor_the_session_reach_the_ui() -> None:
    sent = sent_headers(
        request(authorization="Bearer secret", cookie="mitosis_ui=secret; _csrf=theirs", accept="x")
    )
    assert sent == [(b"accept", b"x"), (b"cookie", b"_csrf=theirs")]
    assert sent_headers(request(cookie="mitosis_ui=secret")) == []


def test_answers_keep_their_cookies_and_lose_what_opens_them_to_others() -> None:
    returned = dict(
        returned_headers(
            [
                (b"Set-Cookie", b"_csrf=theirs"),
                (b"Access-Control-Allow-Origin", b"*"),
                (b"x-frame-options", b"ALLOWALL"),
                (b"Content-Encoding", b"gzip"),
                (b"X-Name", b"\xff\xc3\xa9"),
            ]
        )
    )
    assert returned[b"Set-Cookie"] == b"_csrf=theirs"
    assert returned[b"X-Frame-Options"] == b"DENY"
    assert returned[b"Content-Encoding"] == b"gzip"
    assert returned[b"X-Name"] == b"\xff\xc3\xa9"
    assert b"Access-Control-Allow-Origin" not in returned
    assert b"x-frame-options" not in returned, "only ours"


def test_headers_of_any_bytes_pass() -> None:
    odd = Request(
        {
            "type": "http",
            "headers": [(b"x-name", b"\xff\xc3\xa9"), (b"cookie", b"a=\xff; mitosis_ui=secret")],
        }
    )
    sent = sent_headers(odd)
    assert sent == [(b"x-name", b"\xff\xc3\xa9"), (b"cookie", b"a=\xff")]
    built = httpx2.Request("GET", "http://127.0.0.1/", headers=sent)
    assert (b"x-name", b"\xff\xc3\xa9") in [(n.lower(), v) for n, v in built.headers.raw]


def test_the_cookie_is_for_the_ui_alone() -> None:
    cookie = session_cookie("secret", secure=True)["Set-Cookie"]
    for flag in ("Path=/temporal", "HttpOnly", "SameSite=Strict", "Secure"):
        assert flag in cookie
