"""The calls of manager agents, with the manager's token. Each call counts as contact (protocol P4)."""

from typing import Annotated
from uuid import UUID

import msgspec
from fastapi import APIRouter, Header, Request
from starlette.responses import Response

from api.bodies import (
    BODY_LIMIT,
    REPORT_LIMIT,
    check_utf8,
    decode,
    encode,
    read_body,
)
from api.deps import AppStateDep, ManagerDep, ManagerSubject, app_state_of
from api.issuing import issue_token
from api.json_text import without_nul
from api.limits import AgentRoute
from api.openapi import hot_route
from api.report_counts import count_reports
from mitosis.contracts.account_http import IssueToken
from mitosis.contracts.agent_http import (
    EnvironmentAnswer,
    EnvironmentChange,
    EnvironmentGrant,
    Goodbye,
    Hello,
    HelloAnswer,
    LeaseGrant,
)
from mitosis.contracts.errors import TooLarge
from mitosis.contracts.http import Epoch, Token
from mitosis.contracts.temporal_names import INCARNATION_HEADER
from mitosis.contracts.wire import (
    MAX_HELD,
    MAX_REPORTS,
    ClaimAnswer,
    ClaimTasks,
    Renewal,
    RenewalAnswer,
    ReportAnswer,
    ReportTasks,
)
from mitosis.store.leases.granting import get_grant, take_lease
from mitosis.store.managers import environments
from mitosis.store.managers.contact import record_contact, renew
from mitosis.store.managers.hello import say_goodbye, say_hello
from mitosis.store.tasks.claim import claim_tasks
from mitosis.store.tasks.report import report_tasks

Incarnation = Annotated[int | None, Header(alias=INCARNATION_HEADER, ge=1, le=2**63 - 1)]
"""The process of the agent that calls; a process older than the last hello is refused. None: not checked."""

router = APIRouter(prefix="/managers", tags=["agents"], route_class=AgentRoute)

_CLAIM = msgspec.json.Decoder(ClaimTasks)
_REPORT = msgspec.json.Decoder(ReportTasks)
_RENEWAL = msgspec.json.Decoder(Renewal)


@router.post("/tasks/claim", openapi_extra=hot_route(ClaimTasks, ClaimAnswer))
async def claim(request: Request, manager_id: ManagerDep) -> Response:
    """Take tasks under a lease; wait up to ``wait_seconds`` while there are none (P3, P7)."""
    body = decode(await read_body(request, BODY_LIMIT), _CLAIM)
    state = app_state_of(request)
    claiming = claim_tasks(state.store, manager_id, body)
    if body.wait_seconds == 0:
        return encode(await claiming)
    return encode(await state.long_polls.hold(request, claiming))


@router.post("/tasks/report", openapi_extra=hot_route(ReportTasks, ReportAnswer))
async def report(request: Request, manager_id: ManagerDep) -> Response:
    """Report how attempts ended; the answer has one status per report.

    A NUL character in a detail (programs may print one) is stored as U+FFFD.
    """
    raw = await read_body(request, REPORT_LIMIT)
    check_utf8(raw)
    body = decode(without_nul(raw), _REPORT)
    if len(body.reports) > MAX_REPORTS:
        raise TooLarge(
            f"one call takes at most {MAX_REPORTS} reports, not {len(body.reports)}",
            field="reports",
            limit=MAX_REPORTS,
        )
    state = app_state_of(request)
    answer = await report_tasks(state.store, manager_id, body)
    count_reports(state, manager_id, answer.statuses)
    return encode(answer)


@router.post("/heartbeat", openapi_extra=hot_route(Renewal, RenewalAnswer))
async def heartbeat(request: Request, manager_id: ManagerDep) -> Response:
    """Renew contact, every 3 s; send the started, returned and held attempts."""
    body = decode(await read_body(request, BODY_LIMIT), _RENEWAL)
    if body.held is not None and len(body.held.task_ids) > MAX_HELD:
        raise TooLarge(
            f"one call takes at most {MAX_HELD} ids, not {len(body.held.task_ids)}",
            field="held.task_ids",
            limit=MAX_HELD,
        )
    state = app_state_of(request)
    answer = await renew(state.store, manager_id, body)
    answer.request_fields = state.common_fields.listed
    return encode(answer)


@router.post("/hello")
async def hello(state: AppStateDep, manager_id: ManagerDep, body: Hello) -> HelloAnswer:
    """Register a new process of the agent (P5)."""
    answer = await say_hello(state.store, manager_id, body, namespace=state.temporal_namespace)
    return answer.model_copy(update={"request_fields": state.common_fields.listed})


@router.post("/token")
async def renew_token(state: AppStateDep, subject: ManagerSubject, body: IssueToken) -> Token:
    """Return a new token of the agent; the earlier ones stay valid until they expire."""
    return await issue_token(state, subject, body.lifetime)


@router.post("/goodbye", status_code=204)
async def goodbye(
    state: AppStateDep, manager_id: ManagerDep, body: Goodbye, incarnation: Incarnation = None
) -> None:
    """Record that the agent's process ends in order: its lease is released, its tasks become ready again."""
    await say_goodbye(state.store, manager_id, body.epoch, incarnation)


@router.post("/leases/{epoch}/take")
async def take(
    state: AppStateDep, manager_id: ManagerDep, epoch: Epoch, incarnation: Incarnation = None
) -> LeaseGrant:
    """Take an offered lease."""
    await record_contact(state.store, manager_id, incarnation)
    return await take_lease(state.store, manager_id, epoch)


@router.get("/leases/{epoch}")
async def grant(
    state: AppStateDep, manager_id: ManagerDep, epoch: Epoch, incarnation: Incarnation = None
) -> LeaseGrant:
    """Return what the agent needs to run a lease that it has taken."""
    await record_contact(state.store, manager_id, incarnation)
    return await get_grant(state.store, manager_id, epoch)


@router.post("/environments/{task_group_id}")
async def change_environment(
    state: AppStateDep,
    manager_id: ManagerDep,
    task_group_id: UUID,
    body: EnvironmentChange,
    incarnation: Incarnation = None,
) -> EnvironmentAnswer:
    """Change the state of the environment of a task group on this host (P9)."""
    await record_contact(state.store, manager_id, incarnation)
    return await environments.change_environment(state.store, manager_id, task_group_id, body)


@router.get("/environments/{task_group_id}")
async def environment(
    state: AppStateDep, manager_id: ManagerDep, task_group_id: UUID, incarnation: Incarnation = None
) -> EnvironmentGrant:
    """Return what the agent needs to clean up after a group."""
    await record_contact(state.store, manager_id, incarnation)
    return await environments.get_environment(state.store, manager_id, task_group_id)
