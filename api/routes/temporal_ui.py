"""Temporal's Web UI for administrators: the link that opens a session, and everything below ``/temporal``."""

import httpx2
from fastapi import APIRouter, Request
from fastapi.responses import RedirectResponse, StreamingResponse
from starlette.background import BackgroundTask
from starlette.responses import Response

from api.admission import charge
from api.app_state import AppState
from api.bodies import BODY_LIMIT, read_body
from api.deps import AdministratorDep, AppStateDep, app_state_of
from api.temporal_ui import (
    COOKIE,
    GUARDS,
    PATH,
    TemporalUi,
    check_origin,
    returned_headers,
    sent_headers,
    session_cookie,
)
from mitosis.contracts.account_http import UiLink
from mitosis.contracts.errors import InvalidRequest, NotFound, TemporalUnavailable, Unauthenticated
from mitosis.store.users.accounts import find_user

router = APIRouter(tags=["account"])
pages = APIRouter(prefix=PATH, include_in_schema=False)
METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"]


@router.post("/temporal-ui", status_code=201)
async def open_ui(state: AppStateDep, administrator: AdministratorDep) -> UiLink:
    """Return a link to the Web UI of the embedded Temporal server: it opens once, within a minute."""
    code = _ui(state).new_code(administrator)
    return UiLink(path=f"{PATH}/open?code={code}")


@pages.get("/open")
async def enter(request: Request, code: str) -> Response:
    """Exchange the code of a link for a session."""
    check_origin(request)
    session = _ui(app_state_of(request)).open_session(code)
    cookie = session_cookie(session, secure=request.url.scheme == "https")
    return RedirectResponse(f"{PATH}/", 303, headers={**GUARDS, **cookie})


@pages.api_route("/{path:path}", methods=METHODS)
async def pass_on(request: Request, path: str) -> Response:
    """Pass a request of a session on to the UI, and its answer back."""
    del path  # the raw one is passed on
    check_origin(request)
    ui = await _authorised(request)
    body = await read_body(request, BODY_LIMIT, any_type=True)
    target = request.scope["raw_path"] + (b"?" if request.scope["query_string"] else b"")
    try:
        url = httpx2.URL((target + request.scope["query_string"]).decode("latin-1"))
    except httpx2.InvalidURL as error:
        raise InvalidRequest(f"this is no address of a page: {error}") from None
    passed = ui.http.build_request(request.method, url, headers=sent_headers(request), content=body)
    try:
        answer = await ui.http.send(passed, stream=True)
    except httpx2.TransportError as error:
        raise TemporalUnavailable(f"the Web UI does not answer: {error}") from None
    streamed = StreamingResponse(
        answer.aiter_raw(), answer.status_code, background=BackgroundTask(answer.aclose)
    )
    streamed.raw_headers = returned_headers(answer.headers.raw)
    return streamed


async def _authorised(request: Request) -> TemporalUi:
    """Return the UI for a request whose session is of a user who is still an administrator.

    Raises:
        NotFound: this API has no UI.
        Unauthenticated: there is no session, or the user is locked or its tokens were revoked since.
    """
    state = app_state_of(request)
    ui = _ui(state)
    then = ui.user_of(request.cookies.get(COOKIE, ""))
    now = await find_user(state.store, then.user_id)
    if now is None or not now.is_admin or now.token_version != then.token_version:
        raise Unauthenticated("get a link with: mitosis ui", reason="session_missing")
    charge(request, ("user", now.user_id))
    return ui


def _ui(state: AppState) -> TemporalUi:
    if state.temporal_ui is None:
        raise NotFound("this API has no embedded Temporal server; use the Web UI of your own")
    return state.temporal_ui
