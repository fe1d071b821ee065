"""The calls of users about managers: register, list, show, and the managers of a task group."""

from collections.abc import Sequence
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Query, Request

from api.auth import Subject
from api.deps import (
    AppStateDep,
    ReadableGroup,
    UserDep,
    WritableGroup,
    app_state_of,
    writable_group,
)
from api.issuing import issue_token
from api.limits import LimitedRoute
from api.routes.references import PATH
from mitosis.contracts.account_http import IssueToken
from mitosis.contracts.accounts import RANK, Role, User
from mitosis.contracts.errors import NotFound, PermissionDenied
from mitosis.contracts.group_managers import NamedManagers, RefreshedManagers
from mitosis.contracts.host_failures import HostFailureKind
from mitosis.contracts.http import (
    GroupManagerInfo,
    LiftedFailures,
    LiftFailures,
    ManagerInfo,
    Page,
    RegisteredManager,
    RegisterManager,
    Token,
)
from mitosis.contracts.manager_verbs import DeleteManagerQuery, DrainBody, ManagerUpdate
from mitosis.contracts.queries import ListQuery
from mitosis.store.groups.assignment import (
    add_managers,
    listed_managers,
    refresh_managers,
    remove_managers,
)
from mitosis.store.leases.failures import lift_failures
from mitosis.store.managers import views
from mitosis.store.managers.changes import delete_manager, update_manager
from mitosis.store.managers.draining import drain_manager, resume_manager
from mitosis.store.managers.registration import (
    generated_name,
    register_manager,
    token_version,
)
from mitosis.store.users.tokens import forget_versions

router = APIRouter(tags=["managers"], route_class=LimitedRoute)


async def visible_manager(state: AppStateDep, user: UserDep, manager_id: UUID) -> ManagerInfo:
    """Return the manager of the path, for users of its user groups.

    Raises:
        NotFound: there is no such manager, or the user may not see it.
    """
    info = await views.get_manager(state.store, manager_id)
    if not (user.is_admin or user.groups.keys() & set(info.groups)):
        raise NotFound(f"there is no manager {manager_id}", manager_id=manager_id)
    return info


VisibleManager = Annotated[ManagerInfo, Depends(visible_manager)]


@router.post("/managers", status_code=201)
async def register(state: AppStateDep, user: UserDep, body: RegisterManager) -> RegisteredManager:
    """Register a host; its agent uses the token, which is shown only here."""
    name = body.name or generated_name()
    named = body.model_copy(update={"name": name})
    manager_id, version = await register_manager(state.store, named, user.user_id)
    token = await issue_token(state, Subject("manager", manager_id, version), body.lifetime)
    return RegisteredManager(
        manager_id=manager_id, name=name, token=token.token, expires_at=token.expires_at
    )


@router.get("/managers")
async def list_managers(
    state: AppStateDep, user: UserDep, query: Annotated[ListQuery, Query()]
) -> Page[ManagerInfo]:
    """List the hosts of the caller's user groups, by name."""
    return await views.list_managers(
        state.store, user.user_id, after=query.after, limit=query.limit
    )


@router.get("/managers/{manager_id}")
async def show(manager: VisibleManager) -> ManagerInfo:
    """Return one host: state, lease, environments, and what it failed at."""
    return manager


@router.put("/managers/{manager_id}")
async def update(
    state: AppStateDep, user: UserDep, manager: VisibleManager, body: ManagerUpdate
) -> ManagerInfo:
    """Change name, tags or labels of a host. Task groups follow new tags when they are refreshed."""
    _require_role(user, manager, "admin")
    await update_manager(state.store, manager.manager_id, body)
    return await views.get_manager(state.store, manager.manager_id)


@router.delete("/managers/{manager_id}", status_code=204)
async def delete(
    state: AppStateDep,
    user: UserDep,
    manager: VisibleManager,
    query: Annotated[DeleteManagerQuery, Query()],
) -> None:
    """Delete a host that has no lease and nothing to clean up. Its token is refused from then on."""
    _require_role(user, manager, "admin")
    await delete_manager(state.store, manager.manager_id, force=query.force)


@router.post("/managers/{manager_id}/token", status_code=201)
async def new_token(
    state: AppStateDep, user: UserDep, manager: VisibleManager, body: IssueToken | None = None
) -> Token:
    """Return a new token for the agent of a host, which is shown only here. Earlier ones stay valid."""
    _require_role(user, manager, "admin")
    forget_versions(state.store)  # a version from before a revocation would make a dead token
    version = await token_version(state.store, manager.manager_id)
    subject = Subject("manager", manager.manager_id, version or 0)
    return await issue_token(state, subject, (body or IssueToken()).lifetime)


@router.post("/managers/{manager_id}/drain")
async def drain(
    state: AppStateDep, user: UserDep, manager: VisibleManager, body: DrainBody | None = None
) -> ManagerInfo:
    """Have a host finish its tasks and take no new ones, until it is resumed. Idempotent.

    `drain.empty` of the host says when nothing runs on it and nothing is left to clean up.
    """
    _require_role(user, manager, "write")
    how = body or DrainBody()
    await drain_manager(state.store, manager.manager_id, now=how.now, reason=how.reason)
    return await views.get_manager(state.store, manager.manager_id)


@router.post("/managers/{manager_id}/resume")
async def resume(state: AppStateDep, user: UserDep, manager: VisibleManager) -> ManagerInfo:
    """Take a drained host into service again. Idempotent."""
    _require_role(user, manager, "write")
    await resume_manager(state.store, manager.manager_id)
    return await views.get_manager(state.store, manager.manager_id)


@router.post("/managers/{manager_id}/retry-setup")
async def retry_setup(
    request: Request, user: UserDep, manager: VisibleManager, body: LiftFailures
) -> LiftedFailures:
    """Repeat the setup that failed on this host for one task group, or for all (C-30). Idempotent."""
    kinds = (HostFailureKind.SETUP_FAILED,)
    return await _lift(request, user, manager, body, kinds)


@router.post("/managers/{manager_id}/release-quarantine")
async def release_quarantine(
    request: Request, user: UserDep, manager: VisibleManager, body: LiftFailures
) -> LiftedFailures:
    """End the quarantine of this host for one task group, or for all (C-33). Idempotent."""
    kinds = (HostFailureKind.QUARANTINED,)
    return await _lift(request, user, manager, body, kinds)


async def _lift(
    request: Request,
    user: User,
    manager: ManagerInfo,
    body: LiftFailures,
    kinds: Sequence[HostFailureKind],
) -> LiftedFailures:
    """Try a host again, for users who may change the task group, or without one a group of the host."""
    named = body.task_group
    group_id = None if named is None else await writable_group(request, named)
    if group_id is None:
        _require_role(user, manager, "write")
    store = app_state_of(request).store
    names = await lift_failures(store, manager.manager_id, group_id, kinds)
    return LiftedFailures(task_groups=list(names))


def _require_role(user: User, manager: ManagerInfo, needed: Role) -> None:
    """Check a role in one of the user groups of a host.

    Raises:
        PermissionDenied: the user has it in none.
    """
    roles = [user.groups[name] for name in manager.groups if name in user.groups]
    if not (user.is_admin or any(RANK[role] >= RANK[needed] for role in roles)):
        raise PermissionDenied(
            f"this needs the role {needed} in a user group of the host", needed=needed
        )


@router.get(PATH + "/managers")
async def list_of_group(state: AppStateDep, group: ReadableGroup) -> list[GroupManagerInfo]:
    """List the members of a task group: matched by its tags at the last refresh, or added by a user."""
    return list(await listed_managers(state.store, group))


@router.post(PATH + "/managers", status_code=204)
async def add_to_group(
    state: AppStateDep, user: UserDep, group: WritableGroup, body: NamedManagers
) -> None:
    """Add managers to a task group, all or none. Idempotent; it ends an earlier removal."""
    await add_managers(state.store, group, body.manager_ids, user.user_id)


@router.post(PATH + "/managers/refresh")
async def refresh(state: AppStateDep, group: WritableGroup) -> RefreshedManagers:
    """Match managers to the tags of the task group again; those that a user added or removed stay so.

    Leases of managers that no longer match start to end.
    """
    return await refresh_managers(state.store, group)


@router.delete(PATH + "/managers", status_code=204)
async def remove_from_group(
    state: AppStateDep, user: UserDep, group: WritableGroup, body: NamedManagers
) -> None:
    """Remove managers from a task group, all or none, until they are added again. Idempotent.

    Their leases for the task group start to end: running tasks finish, the others are returned.
    """
    await remove_managers(state.store, group, body.manager_ids, user.user_id)
