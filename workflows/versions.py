"""Worker versioning: the newest control worker that runs serves all workflows (ADR 0018).

Each control worker polls for its own build. Temporal sends the workflow tasks of every run to the *current*
build; the newest build that runs makes itself current, and the last process of a build hands over at its end.
"""

import asyncio
import logging
from collections.abc import Sequence
from datetime import timedelta
from typing import Protocol

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import (
    DescribeTaskQueueRequest,
    DescribeWorkerDeploymentRequest,
    SetWorkerDeploymentCurrentVersionRequest,
)
from temporalio.client import Client
from temporalio.common import VersioningBehavior, WorkerDeploymentVersion
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import WorkerDeploymentConfig

from mitosis.build import newest
from mitosis.concurrency import raise_if_cancelled, within
from mitosis.contracts.errors import DatabaseUnavailable
from mitosis.contracts.temporal_names import CONTROL_TASK_QUEUE, DEPLOYMENT

log = logging.getLogger(__name__)

EVERY_SECONDS = 10.0
"""How often a process looks whether it is the newest: after a crash of a newer one, or a loss of Temporal's
data."""
HAND_OVER_SECONDS = 2.0
"""How long the end of a process may wait for Temporal and PostgreSQL."""
ROUTED_SECONDS = 5.0
ROUTED_LOOK_SECONDS = 0.05
RPC_TIMEOUT = timedelta(seconds=10)
UNVERSIONED = ""
"""The build of workers without versioning, as Temporal takes it."""
_NOT_OFFERED = (
    RPCStatusCode.UNIMPLEMENTED,
    RPCStatusCode.PERMISSION_DENIED,
    RPCStatusCode.FAILED_PRECONDITION,
    RPCStatusCode.INVALID_ARGUMENT,
)
"""Answers of a server that has no worker versioning, or does not let us use it."""


class BuildsPort(Protocol):
    """The control workers that run, as PostgreSQL knows them."""

    @property
    def build(self) -> str:
        """The build of this process."""
        ...

    async def live_builds(self) -> Sequence[str]:
        """Return the build of each control process that runs, the latest start last.

        Raises:
            DatabaseUnavailable: PostgreSQL does not answer.
        """
        ...


class Versions:
    """The part of one control worker in the choice of the current build. Any number may take part."""

    def __init__(self, client: Client, builds: BuildsPort, *, offered: bool = True) -> None:
        """``offered``: whether the server has worker versioning; :meth:`begin` finds out if it has not."""
        self._client = client
        self._builds = builds
        self._offered = offered
        self._is_current = False

    async def begin(self) -> WorkerDeploymentConfig | None:
        """Make this build current if it is the newest; return how to poll.

        None where the server has no worker versioning, or does not permit it: poll without a version.

        Raises:
            RPCError: the server does not answer.
        """
        try:
            await self.ensure()
        except RPCError as error:
            if error.status not in _NOT_OFFERED:
                raise
            self._offered = self._is_current = False
            log.warning("versions.not_offered", extra={"reason": error.message})
        except DatabaseUnavailable as error:
            log.warning("versions.unknown", extra={"reason": error.message})
        return self._follows_current() if self._offered else None

    def _follows_current(self) -> WorkerDeploymentConfig:
        """Poll for this build; the workflows move to the current one with their next task."""
        return WorkerDeploymentConfig(
            WorkerDeploymentVersion(DEPLOYMENT, self._builds.build),
            use_worker_versioning=True,
            default_versioning_behavior=VersioningBehavior.AUTO_UPGRADE,
        )

    async def wait_routed(self) -> None:
        """Wait, a while at most, until the server sends tasks to this build, if :meth:`begin` chose it.

        The server learns from the first poll that the task queue belongs to the build. Until then a worker of
        an earlier version could get a workflow whose type it does not know.
        """
        if self._is_current:
            try:
                await within(self._routed(), ROUTED_SECONDS)
            except (RPCError, TimeoutError) as error:
                log.warning("versions.not_routed", extra={"reason": str(error)})

    async def _routed(self) -> None:
        request = DescribeTaskQueueRequest(
            namespace=self._client.namespace,
            task_queue=TaskQueue(name=CONTROL_TASK_QUEUE),
            task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW,
        )
        while True:
            found = await self._client.workflow_service.describe_task_queue(
                request, timeout=RPC_TIMEOUT
            )
            if found.versioning_info.current_deployment_version.build_id == self._builds.build:
                return
            await asyncio.sleep(ROUTED_LOOK_SECONDS)

    async def run(self) -> None:
        """Ensure it again and again, until cancelled. Survives outages of PostgreSQL and of Temporal."""
        while True:
            await asyncio.sleep(EVERY_SECONDS)
            raise_if_cancelled()
            try:
                await self.ensure()
            except (DatabaseUnavailable, RPCError) as error:
                log.warning("versions.failed", extra={"reason": str(error)})

    async def ensure(self) -> None:
        """Make this build current, unless a newer one runs, or the server has no versioning.

        Raises:
            DatabaseUnavailable: PostgreSQL does not answer.
            RPCError: Temporal does not answer, or refuses it.
        """
        if not self._offered:
            return
        own, live = self._builds.build, await self._builds.live_builds()
        self._is_current = newest(live if own in live else [*live, own]) == own
        if self._is_current:
            await self._route(None, own)

    async def hand_over(self) -> None:
        """Let others serve the workflows, unless a process of this build goes on. Never fails."""
        try:
            await within(self._hand_over(), HAND_OVER_SECONDS)
        except (DatabaseUnavailable, RPCError, TimeoutError) as error:
            log.warning("versions.not_handed_over", extra={"reason": str(error)})

    async def _hand_over(self) -> None:
        if not self._offered:
            return
        own, others = self._builds.build, list(await self._builds.live_builds())
        if own in others:
            others.remove(own)  # this process
        if own not in others:
            await self._route(own, newest(others) if others else UNVERSIONED)

    async def _route(self, before: str | None, build: str) -> None:
        """Send the workflow tasks of all runs to ``build``; with ``before``, only if they go there now."""
        current, token = await self._current()
        if current == build or before not in (None, current):
            return
        await self._client.workflow_service.set_worker_deployment_current_version(
            SetWorkerDeploymentCurrentVersionRequest(
                namespace=self._client.namespace,
                deployment_name=DEPLOYMENT,
                build_id=build,
                conflict_token=token,
                identity=self._client.identity,
                allow_no_pollers=True,
                ignore_missing_task_queues=True,
            ),
            timeout=RPC_TIMEOUT,
        )
        log.info("versions.current", extra={"build": build, "before": current})

    async def _current(self) -> tuple[str, bytes]:
        """Return the current build and what proves that it has not changed since."""
        request = DescribeWorkerDeploymentRequest(
            namespace=self._client.namespace, deployment_name=DEPLOYMENT
        )
        try:
            found = await self._client.workflow_service.describe_worker_deployment(
                request, timeout=RPC_TIMEOUT
            )
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
            return UNVERSIONED, b""
        routing = found.worker_deployment_info.routing_config
        return routing.current_deployment_version.build_id, found.conflict_token
