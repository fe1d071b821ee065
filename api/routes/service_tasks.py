"""The calls by which worker services claim and report named tasks (protocol P10), with the service's token.

A process claims for its free slots and names what it holds; it reports by task and attempt. The single-task
forms are for processes that handle one task at a time.
"""

from typing import Annotated

import msgspec
from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from api.bodies import BODY_LIMIT, REPORT_LIMIT, check_utf8, decode, encode, read_body
from api.deps import AppStateDep, app_state_of
from api.json_text import without_nul
from api.limits import AgentRoute
from api.openapi import hot_answer, hot_route
from api.report_counts import count_reports
from api.routes.workers import WorkerDep
from mitosis.contracts.errors import TooLarge
from mitosis.contracts.service_tasks import (
    MAX_CLAIM_WAIT_SECONDS,
    ClaimNamedTasks,
    ClaimNamedTasksAnswer,
    NamedTaskAttempt,
    RecordProgress,
    RecordProgressAnswer,
    ReportNamedTasks,
    ReportNamedTasksAnswer,
    SingleReport,
    SingleReportAnswer,
)
from mitosis.contracts.wire import MAX_REPORTS
from mitosis.store.services.claim import claim_named_tasks
from mitosis.store.services.progress import record_progress
from mitosis.store.services.report import report_named_tasks, report_one

router = APIRouter(prefix="/workers", tags=["workers"], route_class=AgentRoute)

_CLAIM = msgspec.json.Decoder(ClaimNamedTasks)
_REPORTS = msgspec.json.Decoder(ReportNamedTasks)
_REPORT = msgspec.json.Decoder(SingleReport)
_PROGRESS = msgspec.json.Decoder(RecordProgress)


class SingleClaim(BaseModel):
    """Query of a claim of one task by a process that holds none."""

    model_config = ConfigDict(extra="forbid")

    incarnation: Annotated[int, Field(ge=1, le=2**63 - 1)]
    wait_seconds: Annotated[float, Field(ge=0, le=MAX_CLAIM_WAIT_SECONDS)] = 0.0


@router.post("/claim", openapi_extra=hot_route(ClaimNamedTasks, ClaimNamedTasksAnswer))
async def claim(request: Request, worker: WorkerDep) -> Response:
    """Take named tasks for free slots; wait up to `wait_seconds` while there are none.

    `held` names every attempt that the process executes or has not reported: all else that is claimed for it
    is returned again, so a claim without an answer is repeated. One claim at a time.
    """
    body = decode(await read_body(request, BODY_LIMIT), _CLAIM)
    state = app_state_of(request)
    claiming = claim_named_tasks(state.store, worker.id, body)
    if body.wait_seconds == 0:
        return encode(await claiming)
    return encode(await state.long_polls.hold(request, claiming))


@router.post("/report", openapi_extra=hot_route(ReportNamedTasks, ReportNamedTasksAnswer))
async def report(request: Request, worker: WorkerDep) -> Response:
    """Report how attempts ended; the answer has one status per report, and `duplicate` is success.

    A report counts until the task is claimed again, also after the registration has ended. A NUL character in
    a detail is kept as U+FFFD.
    """
    raw = await read_body(request, REPORT_LIMIT)
    check_utf8(raw)
    body = decode(without_nul(raw), _REPORTS)
    if len(body.reports) > MAX_REPORTS:
        raise TooLarge(
            f"one call takes at most {MAX_REPORTS} reports, not {len(body.reports)}",
            field="reports",
            limit=MAX_REPORTS,
        )
    state = app_state_of(request)
    answer = await report_named_tasks(state.store, worker.id, body)
    count_reports(state, worker.id, answer.statuses)
    return encode(answer)


@router.post("/progress", openapi_extra=hot_route(RecordProgress, RecordProgressAnswer))
async def progress(request: Request, worker: WorkerDep) -> Response:
    """Store how far running attempts are, and their checkpoints, which later attempts get with their claim.

    `superseded` means that the attempt does not count any more. A NUL character is kept as U+FFFD.
    """
    raw = await read_body(request, REPORT_LIMIT)
    check_utf8(raw)
    body = decode(without_nul(raw), _PROGRESS)
    return encode(await record_progress(app_state_of(request).store, worker.id, body))


@router.get(
    "/tasks",
    openapi_extra=hot_answer(NamedTaskAttempt),
    responses={204: {"description": "Nothing is claimable"}},
)
async def claim_one(
    request: Request,
    state: AppStateDep,
    worker: WorkerDep,
    query: Annotated[SingleClaim, Query()],
) -> Response:
    """Take one named task; 204 when there is none, after `wait_seconds` at most.

    For a process that holds no task: one that is claimed for it is returned again.
    """
    body = ClaimNamedTasks(incarnation=query.incarnation, wait_seconds=query.wait_seconds)
    claiming = claim_named_tasks(state.store, worker.id, body)
    answer = await state.long_polls.hold(request, claiming)
    return encode(answer.tasks[0]) if answer.tasks else Response(status_code=204)


@router.post("/tasks", openapi_extra=hot_route(SingleReport, SingleReportAnswer))
async def report_single(request: Request, worker: WorkerDep) -> Response:
    """Report one attempt: `Commit` with its outcome, `Cancel`, or `Finish` before a Commit.

    `Upload` is refused with `not_available`.
    """
    raw = await read_body(request, REPORT_LIMIT)
    check_utf8(raw)
    body = decode(without_nul(raw), _REPORT)
    return encode(await report_one(app_state_of(request).store, worker.id, body))
