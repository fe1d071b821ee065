"""The calls about worker services: those of the services themselves, and those of users.

A worker service registers with the token of a user and gets its own, with which it makes the other calls.
"""

from typing import Annotated, TypeVar, cast

from fastapi import APIRouter, Depends, Query, Request

from api.app_state import AppState
from api.auth import Subject
from api.deps import AppStateDep, UserDep, app_state_of, get_user, require_role_in_group
from api.issuing import issue_token
from api.limits import LimitedRoute
from mitosis.contracts.account_http import IssueToken
from mitosis.contracts.accounts import RANK, Role, User
from mitosis.contracts.errors import PermissionDenied
from mitosis.contracts.http import Page, Token
from mitosis.contracts.worker_health import HEARTBEAT_SECONDS
from mitosis.contracts.worker_services import (
    AvailableWorker,
    DrainWorker,
    HeartbeatAnswer,
    HistoryQuery,
    NamedTaskInfo,
    NamedTaskQuery,
    NamedTasksQuery,
    RegisteredWorker,
    RegisterWorker,
    RegistrationInfo,
    WorkerGoodbye,
    WorkerHeartbeat,
    WorkerInfo,
    WorkersQuery,
    WorkerTaskInfo,
)
from mitosis.store.registry import views
from mitosis.store.registry.selection import (
    NamedTask,
    find_available_worker,
    list_workers_for_task,
)
from mitosis.store.services.contact import (
    drain_worker,
    record_heartbeat,
    resume_worker,
    say_goodbye,
)
from mitosis.store.services.registration import register_again, register_worker

router = APIRouter(tags=["workers"], route_class=LimitedRoute)

C = TypeVar("C", WorkerTaskInfo, AvailableWorker)

TASK = "/named-tasks/{namespace}/{name}/{version}"


async def get_worker_subject(request: Request) -> Subject:
    """Return the worker service that makes the call.

    Raises:
        PermissionDenied: the token is not that of a worker service.
    """
    subject = cast("Subject", request.state.subject)
    if subject.kind != "worker":
        raise PermissionDenied(
            f"this call needs the token of a worker service, not of a {subject.kind}"
        )
    return subject


WorkerDep = Annotated[Subject, Depends(get_worker_subject)]


async def visible_worker(request: Request, user: UserDep, worker_id: str) -> WorkerInfo:
    """Return the worker service of the path, for users of its user groups.

    Raises:
        WorkerNotFound: there is none, or the user may not see it.
    """
    return await _shown(app_state_of(request), user, worker_id)


VisibleWorker = Annotated[WorkerInfo, Depends(visible_worker)]


async def visible_task(
    request: Request,
    user: UserDep,
    namespace: str,
    name: str,
    version: str,
    query: Annotated[NamedTaskQuery, Query()],
) -> NamedTask:
    """Return the named task of the path, for users of its user group.

    Raises:
        NotFound: there is no such user group, or the user has no role in it.
    """
    group = query.group_name or user.username
    await require_role_in_group(app_state_of(request), user, group, "read")
    return NamedTask(group, namespace, name, version)


VisibleTask = Annotated[NamedTask, Depends(visible_task)]


@router.post("/workers", status_code=201)
async def register(request: Request, state: AppStateDep, body: RegisterWorker) -> RegisteredWorker:
    """Register a process of a worker service, with the token of a user or with the service's own.

    The token in the answer is shown only here.
    """
    subject = cast("Subject", request.state.subject)
    if subject.kind == "worker":
        made = await register_again(state.store, body, subject.id)
    else:
        user = await get_user(request)
        made = await register_worker(state.store, body, user.user_id)
    own = Subject("worker", made.worker_uuid, made.token_version)
    token = await issue_token(state, own, body.lifetime)
    return RegisteredWorker(
        worker_id=body.worker_id,
        worker_uuid=made.worker_uuid,
        registration_id=made.registration_id,
        incarnation=made.incarnation,
        token=token.token,
        expires_at=token.expires_at,
        heartbeat_seconds=HEARTBEAT_SECONDS,
        silence_seconds=body.silence_seconds,
    )


@router.post("/workers/heartbeat")
async def heartbeat(
    state: AppStateDep, worker: WorkerDep, body: WorkerHeartbeat
) -> HeartbeatAnswer:
    """Record that a worker service runs. After `worker_not_registered` it registers again."""
    return await record_heartbeat(state.store, worker.id, body.incarnation, body.held)


@router.post("/workers/goodbye", status_code=204)
async def goodbye(state: AppStateDep, worker: WorkerDep, body: WorkerGoodbye) -> None:
    """End the registration of a worker service in order. Idempotent."""
    await say_goodbye(state.store, worker.id, body.incarnation, body.reason)


@router.post("/workers/token")
async def renew_token(state: AppStateDep, worker: WorkerDep, body: IssueToken) -> Token:
    """Return a new token of a worker service; the earlier ones stay valid until they expire."""
    return await issue_token(state, worker, body.lifetime)


@router.get("/workers")
async def list_workers(
    state: AppStateDep, user: UserDep, query: Annotated[WorkersQuery, Query()]
) -> Page[WorkerInfo]:
    """List the worker services of the caller's user groups, by id."""
    return await views.list_workers(state.store, user.user_id, after=query.after, limit=query.limit)


@router.get("/workers/{worker_id}")
async def show(worker: VisibleWorker) -> WorkerInfo:
    """Return one worker service: health, and the named tasks that it supports with its configuration."""
    return worker


@router.get("/workers/{worker_id}/registrations")
async def history(
    state: AppStateDep, worker: VisibleWorker, query: Annotated[HistoryQuery, Query()]
) -> Page[RegistrationInfo]:
    """List the registrations of a worker service with their durations, the last one first."""
    return await views.registration_history(
        state.store, worker.worker_uuid, after=query.after, limit=query.limit
    )


@router.post("/workers/{worker_id}/drain")
async def drain(
    state: AppStateDep, user: UserDep, worker: VisibleWorker, body: DrainWorker | None = None
) -> WorkerInfo:
    """Give a worker service no tasks from now on, until it is resumed. Idempotent."""
    _require_role(user, worker, "write")
    await drain_worker(state.store, worker.worker_uuid, None if body is None else body.reason)
    return await _shown(state, user, worker.worker_id)


@router.post("/workers/{worker_id}/resume")
async def resume(state: AppStateDep, user: UserDep, worker: VisibleWorker) -> WorkerInfo:
    """End the drain of a worker service. Idempotent."""
    _require_role(user, worker, "write")
    await resume_worker(state.store, worker.worker_uuid)
    return await _shown(state, user, worker.worker_id)


@router.get("/named-tasks")
async def list_named_tasks(
    state: AppStateDep, user: UserDep, query: Annotated[NamedTasksQuery, Query()]
) -> Page[NamedTaskInfo]:
    """List the named tasks of the caller's user groups with the worker services that can execute them now."""
    return await views.list_named_tasks(
        state.store,
        user.user_id,
        available=query.available,
        after=query.after,
        limit=query.limit,
    )


@router.get(TASK + "/workers")
async def workers_of_task(
    state: AppStateDep, user: UserDep, task: VisibleTask
) -> list[AvailableWorker]:
    """List all worker services that can execute a named task now, the one to choose first."""
    found = await list_workers_for_task(state.store, task)
    return [_for_role(one, user, task.group_name) for one in found]


@router.get(TASK + "/available-worker")
async def available_worker(state: AppStateDep, user: UserDep, task: VisibleTask) -> AvailableWorker:
    """Return the worker service to choose for a named task now; `no_workers_available` if there is none."""
    return _for_role(await find_available_worker(state.store, task), user, task.group_name)


async def _shown(state: AppState, user: User, worker_id: str) -> WorkerInfo:
    """Return a worker service as this user may see it."""
    info = await views.get_worker(state.store, user.user_id, worker_id)
    tasks = [_for_role(one, user, one.group_name) for one in info.supported_tasks or ()]
    return info.model_copy(update={"supported_tasks": tasks})


def _for_role(one: C, user: User, group_name: str) -> C:
    """Return it without the values of its configuration for users whose role is only read."""
    role: Role = "admin" if user.is_admin else user.groups.get(group_name, "read")
    if RANK[role] >= RANK["write"]:
        return one
    return one.model_copy(update={"configuration": dict.fromkeys(one.configuration)})


def _require_role(user: User, worker: WorkerInfo, needed: Role) -> None:
    """Check a role in one of the user groups of a worker service.

    Raises:
        PermissionDenied: the user has it in none.
    """
    roles = [user.groups[name] for name in worker.groups if name in user.groups]
    if not (user.is_admin or any(RANK[role] >= RANK[needed] for role in roles)):
        raise PermissionDenied(
            f"this needs the role {needed} in a user group of the worker service", needed=needed
        )
