"""Live output of running tasks: Server-Sent Events for users, and the two calls of agents."""

from collections.abc import AsyncIterator
from typing import Annotated
from uuid import UUID

import msgspec
from fastapi import APIRouter, Depends, Query, Request
from fastapi.sse import EventSourceResponse, ServerSentEvent
from starlette.responses import Response

from api.bodies import BODY_LIMIT, decode, encode, read_body
from api.deps import (
    AppStateDep,
    ManagerDep,
    ReadableGroup,
    WritableGroup,
    app_state_of,
    readable_task,
    stream_place,
)
from api.environments import sees_values, shown_event
from api.limits import LimitedRoute
from api.openapi import hot_route
from api.routes.events import LastEventId
from api.routes.references import PATH
from mitosis.contracts.following import OutputEvent
from mitosis.contracts.queries import OutputQuery
from mitosis.contracts.wire import (
    Followed,
    FollowedAnswer,
    ReadOutput,
    ReadOutputAnswer,
    WriteOutput,
    WriteOutputAnswer,
)
from mitosis.store.managers.contact import record_contact
from mitosis.store.output.events import follow_group_output, follow_task_output
from mitosis.store.output.reading import read_output
from mitosis.store.output.writing import wait_for_followers, write_output

router = APIRouter(tags=["following"], route_class=LimitedRoute)
agent_router = APIRouter(prefix="/managers/tasks", tags=["agents"])

_FOLLOWED = msgspec.json.Decoder(Followed)
_READ = msgspec.json.Decoder(ReadOutput)
_WRITE = msgspec.json.Decoder(WriteOutput)


@router.get(
    "/tasks/{task_uuid}/output",
    response_class=EventSourceResponse,
    dependencies=[Depends(stream_place)],
)
async def output_of_task(
    request: Request, state: AppStateDep, task_uuid: Annotated[UUID, Depends(readable_task)]
) -> AsyncIterator[ServerSentEvent]:
    """Follow the output of one task: `attempt`, `output` (base64, with its offset), `result`, `end`.

    It begins with the kept tail of the output so far. Buffers are bounded:
    `skipped` says how many bytes are missing before `offset`. A retry is a new attempt.
    """
    values = sees_values(request)
    async for event in state.streams.until_stopped(
        request, follow_task_output(state.store, task_uuid)
    ):
        yield _sent(shown_event(event, values=values))


@router.get(
    PATH + "/output",
    response_class=EventSourceResponse,
    dependencies=[Depends(stream_place)],
)
async def output_of_group(
    request: Request,
    state: AppStateDep,
    group: ReadableGroup,
    query: Annotated[OutputQuery, Query()],
    last_event_id: LastEventId = None,
) -> AsyncIterator[ServerSentEvent]:
    """Follow the output of all tasks of a group, each `result` once; `end` when there is no more.

    The id of an event is the number of the last result sent.
    """
    after = query.after if last_event_id is None else last_event_id
    source = follow_group_output(state.store, group, after=after)
    values = sees_values(request)
    async for event in state.streams.until_stopped(request, source):
        yield _sent(shown_event(event, values=values))


@router.post(PATH + "/output/read", openapi_extra=hot_route(ReadOutput, ReadOutputAnswer))
async def read(request: Request, group: WritableGroup) -> Response:
    """Read the whole output of tasks that were submitted with `stream_output`; wait for the next piece.

    Call it before the tasks run, and again with `after` of the last answer. Such a task waits while its
    reader is behind. Without a reader for 30 s only the tails are kept, as for other tasks.
    """
    body = decode(await read_body(request, BODY_LIMIT), _READ)
    state = app_state_of(request)
    return encode(await state.long_polls.hold(request, read_output(state.store, group, body)))


@agent_router.post("/followed", openapi_extra=hot_route(Followed, FollowedAnswer))
async def followed(request: Request, manager_id: ManagerDep) -> Response:
    """Return which tasks of the lease's task group have followers; wait until that changes (P7)."""
    body = decode(await read_body(request, BODY_LIMIT), _FOLLOWED)
    state = app_state_of(request)
    await record_contact(state.store, manager_id)
    return encode(
        await state.long_polls.hold(request, wait_for_followers(state.store, manager_id, body))
    )


@agent_router.post("/output", openapi_extra=hot_route(WriteOutput, WriteOutputAnswer))
async def write(request: Request, manager_id: ManagerDep) -> Response:
    """Store output of running attempts for followers. It changes no task."""
    body = decode(await read_body(request, BODY_LIMIT), _WRITE)
    state = app_state_of(request)
    await record_contact(state.store, manager_id)
    return encode(await write_output(state.store, manager_id, body))


def _sent(event: OutputEvent) -> ServerSentEvent:
    return ServerSentEvent(event=event.kind, id=str(event.cursor), raw_data=event.text())
