"""Accounts, for administrators; and everybody's own password."""

from typing import Annotated

from fastapi import APIRouter, Query, Request

from api.app_state import AppState
from api.deps import AdministratorDep, AppStateDep, UserDep
from api.limits import LimitedRoute
from api.logins import client_address
from mitosis.contracts.account_http import ChangePassword, NewUser, UserInfo, UsersQuery
from mitosis.contracts.accounts import STACK_ADMINISTRATOR, User
from mitosis.contracts.errors import InvalidRequest, PermissionDenied
from mitosis.contracts.http import Page
from mitosis.store.users import administration
from mitosis.store.users.accounts import verify_password

router = APIRouter(prefix="/users", tags=["account"], route_class=LimitedRoute)


@router.get("")
async def list_users(
    state: AppStateDep, _: AdministratorDep, query: Annotated[UsersQuery, Query()]
) -> Page[UserInfo]:
    """List all accounts, by name."""
    return await administration.list_users(state.store, after=query.after, limit=query.limit)


@router.post("", status_code=201)
async def add(state: AppStateDep, creator: AdministratorDep, body: NewUser) -> UserInfo:
    """Make an account and the user group of its name, in which it is admin; give it roles in others."""
    return await administration.add_user(state.store, body, creator.user_id)


@router.put("/{username}/password")
async def change_password(
    request: Request, state: AppStateDep, user: UserDep, username: str, body: ChangePassword
) -> UserInfo:
    """Set a password: one's own with the current one, or as an administrator. Its earlier tokens end.

    429 with `Retry-After` after too many wrong ones, as for logins.
    """
    if not user.is_admin:
        await _check_own(request, state, user, username, body.current_password)
    return await administration.set_password(state.store, username, body.password)


@router.post("/{username}/lock")
async def lock(state: AppStateDep, administrator: AdministratorDep, username: str) -> UserInfo:
    """Lock an account: it cannot log in, and its tokens end within seconds. Idempotent.

    Hosts and worker services that it has registered go on, with tokens of their own.
    """
    if username == administrator.username:
        raise InvalidRequest("you cannot lock yourself", field="username")
    if username == STACK_ADMINISTRATOR:
        message = (
            "the account of the deployment cannot be locked: no API would start; revoke its tokens"
        )
        raise InvalidRequest(message, field="username")
    return await administration.set_locked(state.store, username, locked=True)


@router.post("/{username}/unlock")
async def unlock(state: AppStateDep, _: AdministratorDep, username: str) -> UserInfo:
    """Unlock an account; it logs in again, as its earlier tokens have ended. Idempotent."""
    return await administration.set_locked(state.store, username, locked=False)


async def _check_own(
    request: Request, state: AppState, user: User, username: str, password: str | None
) -> None:
    """Check that a user changes the own password and knows it.

    Raises:
        PermissionDenied: it is the password of another user.
        InvalidRequest, Unauthenticated: the current password is missing or wrong.
        RateLimited: too many wrong ones.
    """
    if username != user.username:
        raise PermissionDenied("only an administrator may do this", needed="administrator")
    if password is None:
        raise InvalidRequest("this field is required", field="current_password")
    with state.logins.attempt(username, client_address(request)):
        await verify_password(state.store, username, password)
