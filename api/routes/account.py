"""Logging in, and the account behind a token."""

from fastapi import APIRouter, Request

from api.auth import Subject
from api.deps import AppStateDep, UserDep
from api.issuing import issue_token
from api.limits import LimitedRoute, LoginRoute
from api.logins import client_address
from mitosis.contracts.http import Login, Me, Token
from mitosis.store.users.accounts import verify_password

login_router = APIRouter(tags=["account"], route_class=LoginRoute)
router = APIRouter(tags=["account"], route_class=LimitedRoute)


@login_router.post("/login")
async def login(request: Request, state: AppStateDep, body: Login) -> Token:
    """Return a token for a user name and password. Earlier tokens stay valid.

    429 with `Retry-After` after too many failed logins of this name and address, or of this address.
    """
    with state.logins.attempt(body.username, client_address(request)):
        user = await verify_password(state.store, body.username, body.password)
    subject = Subject("user", user.user_id, user.token_version)
    return await issue_token(state, subject, state.token_lifetime)


@router.get("/me")
async def me(user: UserDep) -> Me:
    """Return the user of the token, with their roles."""
    return Me(
        user_id=user.user_id,
        username=user.username,
        is_admin=user.is_admin,
        groups=dict(user.groups),
    )
