"""How long the settled task groups of a user group are kept."""

from fastapi import APIRouter

from api.deps import AppStateDep, UserDep, require_role_in_group
from api.limits import LimitedRoute
from mitosis.contracts.retention import KeepTaskGroups, UserGroupRetention
from mitosis.store.users import keeping

router = APIRouter(prefix="/user-groups", tags=["account"], route_class=LimitedRoute)


@router.get("/{group_name}/retention")
async def show_retention(state: AppStateDep, user: UserDep, group_name: str) -> UserGroupRetention:
    """Return how long settled task groups of a user group are kept (role read)."""
    await require_role_in_group(state, user, group_name, "read")
    return await keeping.show_kept(state.store, group_name)


@router.put("/{group_name}/retention")
async def set_retention(
    state: AppStateDep, user: UserDep, group_name: str, body: KeepTaskGroups
) -> UserGroupRetention:
    """Set how long settled task groups of a user group are kept (role admin).

    Older ones are deleted within an hour, with their tasks and results.
    """
    await require_role_in_group(state, user, group_name, "admin")
    return await keeping.keep_task_groups(state.store, group_name, body)
