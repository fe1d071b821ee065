"""The registration of the process of a worker service: its token, its incarnation, its repetition (P10)."""

import asyncio
import logging
import os
import platform
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from mitosis.client.service_api import ServiceApi
from mitosis.contracts.account_http import IssueToken
from mitosis.contracts.errors import Unauthenticated
from mitosis.contracts.http import Token
from mitosis.contracts.service_tasks import HeldAttempt
from mitosis.contracts.worker_services import (
    HeldTask,
    RegisteredWorker,
    RegisterWorker,
    WorkerGoodbye,
)
from mitosis.execution.backoff import until_reached
from mitosis.execution.identity import (
    keep_incarnation,
    machine_id,
    read_incarnation,
    write_durably,
)
from mitosis.version import __version__
from mitosis.worker_service.config import ServiceConfig
from mitosis.worker_service.targets import Target

TOKEN_FILE = "token"  # noqa: S105 - its name
GROUPS_FILE = "groups"
"""The user groups that a user gave the service at its last registration."""
EARLIEST_RENEWAL_SECONDS = 0.5
MAX_REASON = 1_000

log = logging.getLogger(__name__)


def read_own_token(state_dir: Path) -> str | None:
    """Return the token that the service got at an earlier registration, if any."""
    try:
        return (state_dir / TOKEN_FILE).read_text().strip() or None
    except FileNotFoundError:
        return None


class Registration:
    """Registers the process, again after its registration is over, and renews its token."""

    def __init__(
        self,
        config: ServiceConfig,
        api: ServiceApi,
        targets: Callable[[], Sequence[Target]],
        unreported: Callable[[], Sequence[HeldAttempt]],
    ) -> None:
        """Make no call yet.

        Args:
            config: of the service.
            api: gets the token of the service.
            targets: returns all named tasks that it supports.
            unreported: returns the attempts whose reports wait here.
        """
        self._config = config
        self._api = api
        self._targets = targets
        self._unreported = unreported
        self._started_at = datetime.now(UTC)
        self._once = asyncio.Lock()
        self._renew_at = 0.0
        self._registered: RegisteredWorker | None = None

    @property
    def incarnation(self) -> int:
        """Of this process, once it has registered."""
        return 0 if self._registered is None else self._registered.incarnation

    @property
    def heartbeat_seconds(self) -> float:
        return 30.0 if self._registered is None else self._registered.heartbeat_seconds

    async def begin(self) -> None:
        """Register this process for the first time; its incarnation is on disk before it is used.

        Raises:
            MitosisError: the API refuses it.
        """
        incarnation = max(time.time_ns() // 1000, read_incarnation(self._config.state_dir) + 1)
        keep_incarnation(self._config.state_dir, incarnation)
        own = read_own_token(self._config.state_dir)
        if own is not None and not self._changes_groups():
            self._api.use_token(own)
            try:
                await self._register(incarnation, first=True)
            except Unauthenticated:
                if not self._config.is_user:
                    raise
                log.warning("token.refused", extra={"file": TOKEN_FILE})
            else:
                return
        if not self._config.is_user:
            start = "the first start" if own is None else "a start with another --group"
            raise Unauthenticated(
                f"{start} needs the token of a user: `mitosis login`, or set MITOSIS_TOKEN_FILE"
            )
        self._api.use_token(self._config.token or "")
        await self._register(incarnation, groups=self._config.groups, first=True)
        if self._config.groups:
            self._write(GROUPS_FILE, "\n".join(sorted(self._config.groups)))

    def _changes_groups(self) -> bool:
        """Return whether the groups of the configuration are others than those that the service has."""
        if not self._config.groups:
            return False
        try:
            known = (self._config.state_dir / GROUPS_FILE).read_text().splitlines()
        except FileNotFoundError:  # of an earlier version
            return self._config.is_user
        return _roles(known) != _roles(self._config.groups)

    def _write(self, name: str, text: str) -> None:
        """Write a file of the state folder; on a full disk what is there stays."""
        try:
            write_durably(self._config.state_dir / name, text.encode())
        except OSError as error:
            log.warning("state.not_kept", extra={"file": name, "reason": str(error)})

    async def again(self, registration_id: int) -> None:
        """Register once more after the registration with this id is over; one call for all callers."""
        async with self._once:
            if self.registration_id != registration_id:
                return
            log.warning("registration.over", extra={"worker": self._config.worker_id})
            await self._register(self.incarnation)

    async def start_over(self, reason: str) -> None:
        """End the registration, which gives back all that the process holds, and register again.

        Raises:
            MitosisError: the API is away, or refuses it.
        """
        known = self.registration_id
        plain = "".join(char if char.isprintable() else " " for char in reason)[:MAX_REASON]
        await self._api.goodbye(WorkerGoodbye(incarnation=self.incarnation, reason=plain))
        await self.again(known)

    async def declare(self) -> None:
        """Say what the service supports now, with which configuration; the registration stays."""
        async with self._once:
            await self._register(self.incarnation)

    @property
    def registration_id(self) -> int:
        return 0 if self._registered is None else self._registered.registration_id

    async def keep_token(self) -> None:
        """Get the next token after half the life of each, for ever.

        Raises:
            MitosisError: the API refuses this service.
        """
        while True:
            wait = self._renew_at - time.monotonic()
            if wait > 0:
                await asyncio.sleep(min(wait, 3600.0))
                continue
            token = await until_reached(self._next_token)
            self._use(token.token, token.expires_at)
            log.info("token.renewed", extra={"expires_at": token.expires_at.isoformat()})

    async def _next_token(self) -> Token:
        return await self._api.renew_token(IssueToken(lifetime=self._config.token_lifetime))

    async def _register(
        self, incarnation: int, *, groups: Sequence[str] = (), first: bool = False
    ) -> None:
        """Register; only the first call of a process takes the id over from another machine."""
        body = self._body(incarnation, groups, take_over=first and self._config.take_over)
        answer = await until_reached(lambda: self._api.register(body))
        if answer.incarnation != incarnation:
            keep_incarnation(self._config.state_dir, answer.incarnation)
        self._registered = answer
        self._use(answer.token, answer.expires_at)
        log.info(
            "worker.registered",
            extra={
                "worker": answer.worker_id,
                "incarnation": answer.incarnation,
                "tasks": len(body.supported_tasks),
                "slots": self._config.slots,
                "unreported": len(body.unreported),
            },
        )

    def _body(self, incarnation: int, groups: Sequence[str], *, take_over: bool) -> RegisterWorker:
        config = self._config
        fields = {
            "worker_id": config.worker_id,
            "metadata": {
                "version": __version__,
                "pid": os.getpid(),
                "host": socket.gethostname(),
                "runtime": f"Python {platform.python_version()}",
                "started_at": self._started_at.isoformat(),
            },
            "tags": config.tags,
            "labels": config.labels,
            "slots": config.slots,
            "silence_seconds": config.silence.total_seconds(),
            "incarnation": incarnation,
            "machine_id": machine_id(config.state_dir),
            "take_over": take_over,
            "unreported": [
                HeldTask(task_id=one.task_id, attempt=one.attempt) for one in self._unreported()
            ],
            "supported_tasks": [target.supported for target in self._targets()],
            "lifetime": config.token_lifetime,
        }
        if groups:
            fields["groups"] = groups
        return RegisterWorker.model_validate(fields)

    def _use(self, token: str, expires_at: datetime) -> None:
        self._write(TOKEN_FILE, token)  # else the earlier one stays valid for long
        self._api.use_token(token)
        life = max(timedelta(0), expires_at - datetime.now(UTC)).total_seconds()
        self._renew_at = time.monotonic() + max(EARLIEST_RENEWAL_SECONDS, life / 2)


def _roles(groups: Iterable[str]) -> frozenset[str]:
    """Return each group with its role, which is write where none is given."""
    return frozenset(one if ":" in one else f"{one}:write" for one in groups)
