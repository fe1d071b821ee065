"""The dependencies of the routes: authentication and permissions.

A user sees the task groups and hosts of their user groups. Roles are read < write < admin; an administrator
has every role everywhere. A manager or a worker service acts only on itself. Anything that a caller may not
read is answered as not found.
"""

from collections.abc import AsyncIterator
from typing import Annotated, cast
from uuid import UUID

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.requests import HTTPConnection

from api.admission import charge
from api.app_state import AppState
from api.auth import Subject, invalid_token
from api.environments import keep_role
from api.owner_socket import owner_of
from api.shares import Holder
from mitosis.contracts.accounts import RANK, Role, User
from mitosis.contracts.errors import (
    InvalidRequest,
    NotFound,
    PermissionDenied,
    Unauthenticated,
)
from mitosis.contracts.ids import as_uuid
from mitosis.store.groups.definition import find_group
from mitosis.store.managers.registration import token_version
from mitosis.store.missing import missing_task_group
from mitosis.store.services.registration import worker_token_version
from mitosis.store.tasks.views import read_task
from mitosis.store.users.accounts import find_user, role_in_group, role_in_task_group

# Dependencies are async, because FastAPI runs plain functions in a thread. Hot routes have few of them and do
# not nest them: the overhead of each exceeds its work.
_bearer = HTTPBearer(auto_error=False, scheme_name="token", bearerFormat="JWT")


def app_state_of(request: HTTPConnection) -> AppState:
    """Return the state of the application."""
    return cast("AppState", request.app.state.app_state)


async def get_app_state(request: HTTPConnection) -> AppState:
    return app_state_of(request)


AppStateDep = Annotated[AppState, Depends(get_app_state)]


async def authenticate(
    request: Request, credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]
) -> None:
    """Check the token before everything else.

    The routers of ``api.app`` depend on it; :func:`get_user` and :func:`get_manager_id` read the result
    from the request, and fail if this did not run. Routes whose body FastAPI decodes have done it before.

    Raises:
        Unauthenticated, Overloaded, InvalidRequest: as for :func:`check_caller`.
    """
    await check_caller(request, None if credentials is None else credentials.credentials)


async def check_caller(request: HTTPConnection, token: str | None) -> None:
    """Check the token of a call unless that is done, and count the call to its holder.

    Raises:
        Unauthenticated: there is no token, and the call does not come over the unix socket; or as for
            :func:`check_token`.
        Overloaded: the holder has too many requests.
        InvalidRequest: as for :func:`check_token`.
    """
    if hasattr(request.state, "subject"):
        return
    owner = owner_of(request)
    if token is not None:
        await check_token(request, token)
    elif owner is not None and "authorization" not in request.headers:
        await _take_owner(request, owner)
    else:
        raise Unauthenticated("send a token: Authorization: Bearer …", reason="token_missing")
    charge(request, holder_of(request))


async def _take_owner(request: HTTPConnection, owner: UUID) -> None:
    """Take the caller for the administrator that the operating system user of the API is."""
    user = await find_user(app_state_of(request).store, owner)
    if user is None:
        raise Unauthenticated("the administrator of this stack is locked", reason="token_missing")
    request.state.user = user
    request.state.subject = Subject("user", owner, user.token_version)
    check_address(request)


def bearer_token(request: HTTPConnection) -> str | None:
    """Return the token of the header ``Authorization``; None if it has none."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token if scheme.lower() == "bearer" and token else None


async def check_token(request: HTTPConnection, token: str) -> None:
    """Check that the token is valid now, for any call, and keep whose it is.

    Raises:
        Unauthenticated: it is invalid, has expired or was revoked, or whose it is does not exist.
        InvalidRequest: from :func:`check_address`, which every route needs too.
    """
    state = app_state_of(request)
    subject = state.signer.read(token)
    if subject.kind == "user":
        user = await find_user(state.store, subject.id)
        if user is None or user.token_version != subject.token_version:
            raise invalid_token()
        request.state.user = user
    elif subject.kind == "worker":
        if await worker_token_version(state.store, subject.id) != subject.token_version:
            raise invalid_token()
    elif await token_version(state.store, subject.id) != subject.token_version:
        raise invalid_token()
    request.state.subject = subject
    check_address(request)


def check_address(request: HTTPConnection) -> None:
    """Refuse NUL characters in path and query; PostgreSQL cannot store them.

    Raises:
        InvalidRequest: names the parameter.
    """
    for name, value in (*request.path_params.items(), *request.query_params.multi_items()):
        if "\0" in name or "\0" in str(value):
            raise InvalidRequest("must not contain a NUL character", field=name.replace("\0", "�"))


async def get_user(request: HTTPConnection) -> User:
    """Return the active user that makes the call.

    Raises:
        PermissionDenied: the token is not a user's.
    """
    kind = _subject(request).kind
    if kind != "user":
        raise PermissionDenied(f"this call needs the token of a user, not of a {kind}")
    return cast("User", request.state.user)


async def get_manager_subject(request: HTTPConnection) -> Subject:
    """Return the manager whose agent makes the call, with the version of its token.

    Raises:
        PermissionDenied: the token is not a manager's.
    """
    subject = _subject(request)
    if subject.kind != "manager":
        raise PermissionDenied(f"this call needs the token of a manager, not of a {subject.kind}")
    return subject


async def get_manager_id(request: Request) -> UUID:
    """Return the manager whose agent makes the call.

    Raises:
        PermissionDenied: the token is not a manager's.
    """
    return (await get_manager_subject(request)).id


async def get_administrator(request: HTTPConnection) -> User:
    """Return the administrator that makes the call.

    Raises:
        PermissionDenied: the token is not that of an administrator.
    """
    user = await get_user(request)
    if not user.is_admin:
        raise PermissionDenied("only an administrator may do this", needed="administrator")
    return user


UserDep = Annotated[User, Depends(get_user)]
AdministratorDep = Annotated[User, Depends(get_administrator)]
ManagerSubject = Annotated[Subject, Depends(get_manager_subject)]
ManagerDep = Annotated[UUID, Depends(get_manager_id)]


async def readable_group(request: HTTPConnection, reference: str) -> UUID:
    """Return the task group of the path, for users who may read it.

    Raises:
        NotFound: there is no such task group, or the user has no role in its user group.
    """
    return await _task_group(request, reference, "read")


async def writable_group(request: HTTPConnection, reference: str) -> UUID:
    """Return the task group of the path, for users who may change it.

    Raises:
        NotFound: as for :func:`readable_group`.
        PermissionDenied: the user may only read it.
    """
    return await _task_group(request, reference, "write")


ReadableGroup = Annotated[UUID, Depends(readable_group)]
WritableGroup = Annotated[UUID, Depends(writable_group)]


async def readable_task(request: HTTPConnection, task_uuid: UUID) -> UUID:
    """Return the task of the path, for users who may read its group.

    Raises:
        NotFound: there is no such task, or the user may not read it.
    """
    task = await read_task(app_state_of(request).store, task_uuid)
    await readable_group(request, str(task.task_group_id))
    return task_uuid


async def stream_place(connection: HTTPConnection) -> AsyncIterator[None]:
    """Count the answer as an open stream while it is sent.

    Raises:
        Unavailable: the user has too many open streams beside those of others.
    """
    with app_state_of(connection).streams.place(holder_of(connection)):
        yield


async def require_role_in_group(state: AppState, user: User, group_name: str, needed: Role) -> None:
    """Check a role in a user group.

    Raises:
        NotFound: there is no such group, or the user has no role in it.
        PermissionDenied: the role is too small.
    """
    role = await role_in_group(state.store, user.user_id, group_name)
    _require(role, needed, NotFound(f"there is no user group {group_name}", group_name=group_name))


def holder_of(request: HTTPConnection) -> Holder:
    """Return whose share of the API the call counts to."""
    return _subject(request).holder


def _subject(request: HTTPConnection) -> Subject:
    return cast("Subject", request.state.subject)


async def _task_group(request: HTTPConnection, reference: str, needed: Role) -> UUID:
    state, user = app_state_of(request), await get_user(request)
    named: UUID | str = as_uuid(reference) or (
        reference if "/" in reference else f"{user.username}/{reference}"
    )
    task_group_id = named if isinstance(named, UUID) else await find_group(state.store, named)
    role = await role_in_task_group(state.store, user.user_id, task_group_id)
    # The same answer as for a task group that does not exist.
    keep_role(request, _require(role, needed, missing_task_group(named)))
    request.state.task_group_id = task_group_id
    return task_group_id


def _require(role: Role | None, needed: Role, missing: NotFound) -> Role:
    if role is None:
        raise missing
    if RANK[role] < RANK[needed]:
        raise PermissionDenied(f"this needs the role {needed} in the user group", needed=needed)
    return role
