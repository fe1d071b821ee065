"""The calls of an agent that handles one task at a time: the task group, one claim, one report.

They call claim and report, with the same fences: the epoch of the manager's lease, the number of the claim,
the attempt of the task. Faster agents use the batch calls of ``agents.py``; both may be mixed, since they
share one claim counter.
"""

from typing import Annotated

import msgspec
from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from api.bodies import REPORT_LIMIT, check_utf8, decode, encode, read_body
from api.deps import AppStateDep, ManagerDep
from api.json_text import without_nul
from api.limits import AgentRoute
from api.openapi import hot_answer, hot_route
from api.report_counts import count_reports
from mitosis.contracts.agent_http import ManagerTaskGroup
from mitosis.contracts.errors import Conflict, LeaseLost
from mitosis.contracts.http import MAX_WAIT_SECONDS, Epoch
from mitosis.contracts.wire import (
    ClaimedTask,
    ClaimTasks,
    LeaseStanding,
    ReportTasks,
    TaskReport,
    TaskReportAnswer,
)
from mitosis.store.leases.granting import task_group_of_manager
from mitosis.store.managers.contact import record_contact
from mitosis.store.tasks.claim import claim_tasks
from mitosis.store.tasks.report import report_tasks

router = APIRouter(prefix="/managers", tags=["agents"], route_class=AgentRoute)

_REPORT = msgspec.json.Decoder(TaskReport)


class SingleClaim(BaseModel):
    """Query of a claim of one task."""

    model_config = ConfigDict(extra="forbid")

    epoch: Epoch
    claim_seq: Annotated[int, Field(ge=1, le=2**63 - 1)]
    wait_seconds: Annotated[float, Field(ge=0, le=MAX_WAIT_SECONDS)] = 0.0


class SingleReport(BaseModel):
    """Query of a report of one task."""

    model_config = ConfigDict(extra="forbid")

    epoch: Epoch


@router.get(
    "/task-groups",
    response_model=ManagerTaskGroup,
    responses={204: {"description": "No lease is held or offered"}},
)
async def task_group(state: AppStateDep, manager_id: ManagerDep) -> ManagerTaskGroup | Response:
    """Return the task group of the lease that this manager holds or is offered; 204 without one."""
    await record_contact(state.store, manager_id)
    return await task_group_of_manager(state.store, manager_id) or Response(status_code=204)


@router.get(
    "/tasks",
    openapi_extra=hot_answer(ClaimedTask),
    responses={204: {"description": "Nothing is claimable"}},
)
async def claim_one(
    request: Request,
    state: AppStateDep,
    manager_id: ManagerDep,
    query: Annotated[SingleClaim, Query()],
) -> Response:
    """Take one task under a lease; 204 when there is none, after ``wait_seconds`` at most.

    ``claim_seq`` numbers the claims of a lease from 1. A repeated number returns the same task, so repeat
    an unanswered call unchanged. The next number acknowledges every earlier answer. 409 `lease_lost` when
    the lease is not active (fact `standing`: `ending` or `gone`).
    """
    await record_contact(state.store, manager_id)
    claim = ClaimTasks(
        epoch=query.epoch,
        claim_seq=query.claim_seq,
        acked_seq=query.claim_seq - 1,
        max_tasks=1,
        wait_seconds=query.wait_seconds,
    )
    answer = await state.long_polls.hold(request, claim_tasks(state.store, manager_id, claim))
    if answer.standing is not LeaseStanding.ACTIVE:
        raise LeaseLost(
            f"the lease is {answer.standing}: nothing more may be claimed under it",
            epoch=query.epoch,
            standing=answer.standing.value,
        )
    if len(answer.tasks) > 1:
        raise Conflict(
            "this claim_seq took several tasks; repeat it with the batch call that made it"
        )
    return encode(answer.tasks[0]) if answer.tasks else Response(status_code=204)


@router.post("/tasks", openapi_extra=hot_route(TaskReport, TaskReportAnswer))
async def report_one(
    request: Request,
    state: AppStateDep,
    manager_id: ManagerDep,
    query: Annotated[SingleReport, Query()],
) -> Response:
    """Report how one attempt ended, under the epoch it was claimed with; `duplicate` is success.

    The report is accepted by attempt, even after the lease has ended. A NUL character in a detail is kept
    as U+FFFD.
    """
    raw = await read_body(request, REPORT_LIMIT)
    check_utf8(raw)
    body = ReportTasks(epoch=query.epoch, reports=[decode(without_nul(raw), _REPORT)])
    await record_contact(state.store, manager_id)
    answer = await report_tasks(state.store, manager_id, body)
    count_reports(state, manager_id, answer.statuses)
    return encode(TaskReportAnswer(standing=answer.standing, status=answer.statuses[0]))
