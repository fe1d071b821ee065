"""The calls of users about managers: register, list, show, and the managers of a task group."""

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query

from api.auth import Subject
from api.deps import AppStateDep, ReadableGroup, UserDep, WritableGroup
from api.limits import LimitedRoute
from api.routes.references import PATH
from mitosis.contracts.errors import NotFound
from mitosis.contracts.http import (
    ManagerInfo,
    NamedManagers,
    Page,
    RefreshedManagers,
    RegisteredManager,
    RegisterManager,
)
from mitosis.contracts.queries import ManagersQuery
from mitosis.store.groups.assignment import (
    add_manager,
    listed_managers,
    refresh_managers,
    remove_manager,
)
from mitosis.store.managers import views
from mitosis.store.managers.registration import generated_name, register_manager

router = APIRouter(tags=["managers"], route_class=LimitedRoute)


@router.post("/managers", status_code=201)
async def register(state: AppStateDep, user: UserDep, body: RegisterManager) -> RegisteredManager:
    """Register a host; its agent uses the token, which is shown only here."""
    name = body.name or generated_name()
    named = body.model_copy(update={"name": name})
    manager_id, version = await register_manager(state.store, named, user.user_id)
    token = state.signer.issue(Subject("manager", manager_id, version), body.lifetime)
    return RegisteredManager(
        manager_id=manager_id, name=name, token=token.token, expires_at=token.expires_at
    )


@router.get("/managers")
async def list_managers(
    state: AppStateDep, user: UserDep, query: Annotated[ManagersQuery, Query()]
) -> Page[ManagerInfo]:
    """List the hosts of the caller's user groups, by name."""
    return await views.list_managers(
        state.store, user.user_id, after=query.after, limit=query.limit
    )


@router.get("/managers/{manager_id}")
async def show(state: AppStateDep, user: UserDep, manager_id: UUID) -> ManagerInfo:
    """Return one host: state, lease, environments."""
    info = await views.get_manager(state.store, manager_id)
    if not (user.is_admin or user.groups.keys() & set(info.groups)):
        raise NotFound(f"there is no manager {manager_id}", manager_id=manager_id)
    return info


@router.get(PATH + "/managers")
async def list_of_group(state: AppStateDep, group: ReadableGroup) -> list[ManagerInfo]:
    """List the managers of a group: matched by tags, or named by a user."""
    return list(await listed_managers(state.store, group))


@router.post(PATH + "/managers", status_code=204)
async def add_to_group(
    state: AppStateDep, user: UserDep, group: WritableGroup, body: NamedManagers
) -> None:
    """Name managers for a task group, in order up to the first that is refused. Idempotent."""
    for manager_id in body.manager_ids:
        await add_manager(state.store, group, manager_id, user.user_id)


@router.post(PATH + "/managers/refresh")
async def refresh(state: AppStateDep, group: WritableGroup) -> RefreshedManagers:
    """Match managers to the tags of the task group again; managers named by a user stay."""
    return await refresh_managers(state.store, group)


@router.delete(PATH + "/managers", status_code=204)
async def remove_from_group(state: AppStateDep, group: WritableGroup, body: NamedManagers) -> None:
    """Remove managers from the list; their leases for the task group start to end."""
    for manager_id in body.manager_ids:
        await remove_manager(state.store, group, manager_id)
