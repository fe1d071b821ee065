"""Follows a task group live: Server-Sent Events, and the same events over a WebSocket.

Both need a token that may read the task group, never in a URL: Server-Sent Events take the
``Authorization`` header (in a browser: ``fetch`` with a streamed body, since ``EventSource`` sends no
headers); a WebSocket takes the header or, from browsers, the subprotocols ``mitosis.v1`` and
``mitosis.token.<token>``; the server selects the first.
"""

import contextlib
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Query, Request, WebSocket
from fastapi.sse import EventSourceResponse, ServerSentEvent
from pydantic import TypeAdapter, ValidationError
from starlette.websockets import WebSocketDisconnect

from api.deps import (
    AppStateDep,
    ReadableGroup,
    app_state_of,
    bearer_token,
    check_caller,
    holder_of,
    readable_group,
    stream_place,
)
from api.environments import sees_values, shown_event
from api.errors import invalid_request, problem_response
from api.limits import LimitedRoute
from api.routes.references import PATH
from mitosis.concurrency import race
from mitosis.contracts.errors import MitosisError
from mitosis.contracts.following import GroupEvent
from mitosis.contracts.queries import EventsQuery, ResultNumber
from mitosis.store.groups.events import group_events

router = APIRouter(tags=["following"], route_class=LimitedRoute)
socket_router = APIRouter(tags=["following"])
"""Its token is read here, since a browser cannot send the header."""

SUBPROTOCOL = "mitosis.v1"
TOKEN_PREFIX = "mitosis.token."  # noqa: S105 - not a password
SERVICE_RESTART = 1012

LastEventId = Annotated[ResultNumber | None, Header(alias="Last-Event-ID")]


_NUMBER: TypeAdapter[int] = TypeAdapter(ResultNumber)


@router.get(
    PATH + "/events",
    response_class=EventSourceResponse,
    dependencies=[Depends(stream_place)],
)
async def events(
    request: Request,
    state: AppStateDep,
    group: ReadableGroup,
    query: Annotated[EventsQuery, Query()],
    last_event_id: LastEventId = None,
) -> AsyncIterator[ServerSentEvent]:
    """Follow a group: `group` snapshots, `state`, `lease`, `hook`, each `result` once, `end`.

    The id of an event is the number of the last result sent, so a reader that reconnects with
    `Last-Event-ID` misses none. A comment every 15 s keeps the connection open. The stream ends after
    `end`. If it ends without one (the server stops, the database is unavailable), open it again.

    The same events come over a WebSocket at this path, one JSON text each. A token goes in the
    `Authorization` header, never in the URL; a browser, which cannot set it on a WebSocket, offers the
    subprotocols `mitosis.v1` and `mitosis.token.TOKEN`, and reads Server-Sent Events by `fetch`.
    """
    after = query.after if last_event_id is None else last_event_id
    source = group_events(state.store, group, after=after, results=query.results)
    values = sees_values(request)
    async for event in state.streams.until_stopped(request, source):
        text = shown_event(event, values=values).text()
        yield ServerSentEvent(event=event.kind, id=str(event.cursor), raw_data=text)


@socket_router.websocket(PATH + "/events")
async def events_socket(websocket: WebSocket, reference: str) -> None:
    """Send the same events as JSON text messages; close with 1000 after ``end``, with 1012 at a stop."""
    state = app_state_of(websocket)
    try:
        await check_caller(websocket, _token(websocket))
        with state.streams.place(holder_of(websocket)):
            query = _query(websocket)
            group = await readable_group(websocket, reference)
            await websocket.accept(SUBPROTOCOL if _offered(websocket) else None)
            source = group_events(state.store, group, after=query.after, results=query.results)
            await _serve(
                websocket, state.streams.until_stopped(websocket, source), sees_values(websocket)
            )
    except MitosisError as error:
        await websocket.send_denial_response(problem_response(error))


async def _serve(websocket: WebSocket, events: AsyncIterator[GroupEvent], values: bool) -> None:
    """Send events until they end or the client disconnects."""
    await race(_send_all(websocket, events, values), _until_left(websocket))


async def _send_all(websocket: WebSocket, events: AsyncIterator[GroupEvent], values: bool) -> None:
    ended = False
    with contextlib.suppress(WebSocketDisconnect):
        async for event in events:
            await websocket.send_text(shown_event(event, values=values).text())
            ended = event.kind == "end"
        await websocket.close(1000 if ended else SERVICE_RESTART)


async def _until_left(websocket: WebSocket) -> None:
    """Read and ignore the client's messages until it disconnects."""
    while (await websocket.receive())["type"] != "websocket.disconnect":
        pass


def _offered(websocket: WebSocket) -> list[str]:
    header = websocket.headers.get("sec-websocket-protocol", "")
    return [word.strip() for word in header.split(",") if word.strip()]


def _token(websocket: WebSocket) -> str | None:
    """Return the token of the header, or the one that is offered as a subprotocol."""
    offered = (word for word in _offered(websocket) if word.startswith(TOKEN_PREFIX))
    in_words = next((word.removeprefix(TOKEN_PREFIX) for word in offered), None)
    return bearer_token(websocket) or in_words


def _query(websocket: WebSocket) -> EventsQuery:
    """Return the query of the other route, header included.

    Raises:
        InvalidRequest: names the parameter or the header.
    """
    try:
        query = EventsQuery.model_validate(dict(websocket.query_params))
    except ValidationError as error:
        raise invalid_request(error.errors()) from None
    if (number := websocket.headers.get("last-event-id")) is None:
        return query
    try:
        return query.model_copy(update={"after": _NUMBER.validate_python(number)})
    except ValidationError as error:
        found = {**error.errors()[0], "loc": ("Last-Event-ID",)}
        raise invalid_request([found]) from None
