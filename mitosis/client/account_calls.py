"""The calls about accounts and tokens; :class:`Client` has them."""

from collections.abc import AsyncIterator, Mapping
from datetime import timedelta
from typing import Any
from urllib.parse import quote
from uuid import UUID

from mitosis.client.parameters import identifier
from mitosis.client.repeated_calls import RepeatedCalls
from mitosis.contracts.account_http import (
    ChangePassword,
    IssueToken,
    NewUser,
    RevokedTokens,
    RevokeTokens,
    TokenHolder,
    UiLink,
    UserInfo,
)
from mitosis.contracts.accounts import Role
from mitosis.contracts.http import Login, Me, Page, Token
from mitosis.contracts.retention import KeepTaskGroups, UserGroupRetention


class AccountCalls(RepeatedCalls):
    """Log in; make, list and lock accounts; set passwords; list who has valid tokens, and revoke them."""

    async def login(self, username: str, password: str) -> Token:
        """Get a token for a user and use it from now on. Not repeated.

        Raises:
            Unauthenticated: unknown user or wrong password.
            RateLimited: too many logins have failed; ``facts["retry_after_seconds"]`` says how long to wait.
        """
        body = Login(username=username, password=password)
        token = await self._api.model(Token, "POST", "/login", body)
        self._api.set_token(token.token)
        return token

    async def me(self) -> Me:
        """Return the user of the token."""
        return await self._get(Me, "/me")

    def users(self) -> AsyncIterator[UserInfo]:
        """Iterate over all accounts; for administrators."""
        return self._pages(Page[UserInfo], "/users", {})

    async def add_user(
        self,
        username: str,
        password: str | None = None,
        *,
        is_admin: bool = False,
        groups: Mapping[str, Role] | None = None,
    ) -> UserInfo:
        """Make an account with a user group of its own; for administrators. Not repeated.

        Args:
            username: its name, and that of its user group.
            password: at least 8 characters; None: the account cannot log in yet.
            is_admin: it has every role everywhere.
            groups: roles in existing user groups.

        Raises:
            AlreadyExists: a user or user group has the name.
            NotFound: there is no such user group.
        """
        given: dict[str, Any] = {"password": password, "groups": groups}
        values = {key: value for key, value in given.items() if value is not None}
        body = NewUser(username=username, is_admin=is_admin, **values)
        return await self._api.model(UserInfo, "POST", "/users", body)

    async def change_password(
        self, username: str, password: str, *, current_password: str | None = None
    ) -> UserInfo:
        """Set a password; all tokens of the account end. Not repeated.

        ``current_password``: needed by all but administrators.
        """
        given = {} if current_password is None else {"current_password": current_password}
        body = ChangePassword(password=password, **given)
        return await self._api.model(UserInfo, "PUT", _path(username) + "/password", body)

    async def lock_user(self, username: str) -> UserInfo:
        """Lock an account: it cannot log in, and its tokens end within seconds; for administrators."""
        path = _path(username) + "/lock"
        return await self._repeat(lambda: self._api.model(UserInfo, "POST", path))

    async def unlock_user(self, username: str) -> UserInfo:
        """Unlock an account; for administrators."""
        path = _path(username) + "/unlock"
        return await self._repeat(lambda: self._api.model(UserInfo, "POST", path))

    async def kept_task_groups(self, group_name: str) -> UserGroupRetention:
        """Return how long the settled task groups of a user group are kept.

        Raises:
            NotFound: there is no such user group.
        """
        return await self._get(UserGroupRetention, _retention_path(group_name))

    async def keep_task_groups(
        self, group_name: str, keep: timedelta | None, *, for_ever: bool = False
    ) -> UserGroupRetention:
        """Set how long the settled task groups of a user group are kept; needs the role admin in it.

        Args:
            group_name: its name.
            keep: from settlement on, at least an hour; None: as the deployment says.
            for_ever: until a user deletes them.

        Raises:
            NotFound: there is no such user group.
        """
        body = KeepTaskGroups(keep=keep, for_ever=for_ever)
        path = _retention_path(group_name)
        return await self._repeat(lambda: self._api.model(UserGroupRetention, "PUT", path, body))

    def token_holders(self) -> AsyncIterator[TokenHolder]:
        """Iterate over those with valid tokens that the caller may revoke."""
        return self._pages(Page[TokenHolder], "/tokens", {})

    async def revoke_tokens(
        self,
        *,
        username: str | None = None,
        manager_id: UUID | None = None,
        worker_id: str | None = None,
    ) -> RevokedTokens:
        """End all tokens of a user, a host or a worker service within seconds; name exactly one."""
        given: dict[str, Any] = {
            "username": username,
            "manager_id": manager_id,
            "worker_id": worker_id,
        }
        body = RevokeTokens(**{key: value for key, value in given.items() if value is not None})
        return await self._api.model(RevokedTokens, "POST", "/tokens/revoke", body)

    async def issue_manager_token(
        self, manager_id: UUID, *, lifetime: timedelta | None = None
    ) -> Token:
        """Return a new token for the agent of a host. Earlier ones stay valid. Not repeated."""
        path = f"/managers/{identifier(manager_id, 'manager_id')}/token"
        body = IssueToken() if lifetime is None else IssueToken(lifetime=lifetime)
        return await self._api.model(Token, "POST", path, body)

    async def temporal_ui_path(self) -> str:
        """Return the path, below the address of the API, that opens the Temporal Web UI once.

        Raises:
            NotFound: the Temporal server is not the embedded one.
        """
        return (await self._api.model(UiLink, "POST", "/temporal-ui")).path


def _retention_path(group_name: str) -> str:
    return f"/user-groups/{quote(group_name, safe='')}/retention"


def _path(username: str) -> str:
    return f"/users/{quote(username, safe='')}"
