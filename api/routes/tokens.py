"""Who has valid tokens, and ending them."""

from collections.abc import Iterable
from typing import Annotated, cast
from uuid import UUID

from fastapi import APIRouter, Query

from api.app_state import AppState
from api.deps import AppStateDep, UserDep
from api.limits import LimitedRoute
from api.routes.managers import visible_manager
from mitosis.contracts.account_http import (
    HolderKind,
    RevokedTokens,
    RevokeTokens,
    TokenHolder,
    TokensQuery,
)
from mitosis.contracts.accounts import User
from mitosis.contracts.errors import PermissionDenied
from mitosis.contracts.http import Page
from mitosis.store.registry.views import get_worker
from mitosis.store.users.administration import get_user_info
from mitosis.store.users.tokens import list_holders, revoke_tokens

router = APIRouter(prefix="/tokens", tags=["account"], route_class=LimitedRoute)


@router.get("")
async def list_tokens(
    state: AppStateDep, user: UserDep, query: Annotated[TokensQuery, Query()]
) -> Page[TokenHolder]:
    """List who has valid tokens that the caller may revoke, and until when.

    That is the caller; the hosts and worker services of user groups in which it is admin; for an
    administrator everybody. The tokens themselves are not stored.
    """
    return await list_holders(state.store, user.user_id, after=query.after, limit=query.limit)


@router.post("/revoke")
async def revoke(state: AppStateDep, user: UserDep, body: RevokeTokens) -> RevokedTokens:
    """End all tokens of a user, host or worker service within seconds, on open streams and held calls too.

    A user logs in again, a host gets a new token by `POST /managers/{manager_id}/token`, a worker service
    registers again with the token of a user.
    """
    kind, holder = await _holder(state, user, body)
    return await revoke_tokens(state.store, kind, holder)


async def _holder(state: AppState, user: User, body: RevokeTokens) -> tuple[HolderKind, UUID]:
    """Return whose tokens to revoke, if the user may do it.

    Raises:
        NotFound: there is none that the user may see.
        PermissionDenied: the user may see it, and is admin in none of its user groups.
    """
    if body.username is not None:
        if body.username == user.username:
            return "user", user.user_id
        if not user.is_admin:
            raise PermissionDenied("only an administrator may do this", needed="administrator")
        return "user", (await get_user_info(state.store, body.username)).user_id
    if body.manager_id is not None:
        host = await visible_manager(state, user, body.manager_id)
        _require_admin(user, host.groups)
        return "manager", body.manager_id
    worker = await get_worker(state.store, user.user_id, cast("str", body.worker_id))
    _require_admin(user, worker.groups)
    return "worker", worker.worker_uuid


def _require_admin(user: User, groups: Iterable[str]) -> None:
    if not (user.is_admin or any(user.groups.get(name) == "admin" for name in groups)):
        raise PermissionDenied(
            "this needs the role admin in one of its user groups", needed="admin"
        )
