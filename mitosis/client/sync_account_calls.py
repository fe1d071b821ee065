"""The calls about accounts and tokens without async; :class:`SyncClient` has them."""

from collections.abc import Iterator, Mapping
from datetime import timedelta
from uuid import UUID

from mitosis.client.client import Client
from mitosis.client.loop_thread import LoopThread
from mitosis.client.sync_task_group import each_of
from mitosis.contracts.account_http import RevokedTokens, TokenHolder, UserInfo
from mitosis.contracts.accounts import Role
from mitosis.contracts.http import Token
from mitosis.contracts.retention import UserGroupRetention


class SyncAccountCalls:
    """Make, list, lock and unlock accounts; set passwords; list who has valid tokens, and revoke them."""

    _client: Client
    _loop: LoopThread

    def users(self) -> Iterator[UserInfo]:
        return each_of(self._loop, self._client.users())

    def add_user(
        self,
        username: str,
        password: str | None = None,
        *,
        is_admin: bool = False,
        groups: Mapping[str, Role] | None = None,
    ) -> UserInfo:
        return self._loop.run(
            self._client.add_user(username, password, is_admin=is_admin, groups=groups)
        )

    def change_password(
        self, username: str, password: str, *, current_password: str | None = None
    ) -> UserInfo:
        return self._loop.run(
            self._client.change_password(username, password, current_password=current_password)
        )

    def lock_user(self, username: str) -> UserInfo:
        return self._loop.run(self._client.lock_user(username))

    def unlock_user(self, username: str) -> UserInfo:
        return self._loop.run(self._client.unlock_user(username))

    def kept_task_groups(self, group_name: str) -> UserGroupRetention:
        return self._loop.run(self._client.kept_task_groups(group_name))

    def keep_task_groups(
        self, group_name: str, keep: timedelta | None, *, for_ever: bool = False
    ) -> UserGroupRetention:
        return self._loop.run(self._client.keep_task_groups(group_name, keep, for_ever=for_ever))

    def token_holders(self) -> Iterator[TokenHolder]:
        return each_of(self._loop, self._client.token_holders())

    def revoke_tokens(
        self,
        *,
        username: str | None = None,
        manager_id: UUID | None = None,
        worker_id: str | None = None,
    ) -> RevokedTokens:
        return self._loop.run(
            self._client.revoke_tokens(
                username=username, manager_id=manager_id, worker_id=worker_id
            )
        )

    def issue_manager_token(self, manager_id: UUID, *, lifetime: timedelta | None = None) -> Token:
        return self._loop.run(self._client.issue_manager_token(manager_id, lifetime=lifetime))

    def temporal_ui_path(self) -> str:
        return self._loop.run(self._client.temporal_ui_path())
