"""Creates in Temporal what must exist: namespace, search attributes, and the workflows PostgreSQL requires.

The control worker's process runs it at start, every 30 s, and when Temporal reports something missing
(protocol P6). So the data of Temporal may be lost at any time.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from datetime import timedelta
from uuid import UUID

from temporalio.service import RPCError

from mitosis.concurrency import raise_if_cancelled, wait_event
from mitosis.contracts.control import Names, WorkflowKind
from mitosis.contracts.errors import DatabaseUnavailable, TemporalUnavailable
from workflows.client import WORKFLOW_TYPES, ControlClient, target
from workflows.namespace import ensure_namespace
from workflows.ports import ExpectedPort

log = logging.getLogger(__name__)

EVERY_SECONDS = 30.0
STARTS_PER_SECOND = 50
RPC_TIMEOUT = timedelta(seconds=10)


class Bootstrap:
    """Idempotent; any number of processes may run it at once."""

    def __init__(
        self,
        client: ControlClient,
        expected: ExpectedPort,
        every_seconds: float = EVERY_SECONDS,
    ) -> None:
        self._client = client
        self._expected = expected
        self._every_seconds = every_seconds
        self._asked = asyncio.Event()

    def ask(self) -> None:
        """Request a run soon: something seems to be missing."""
        self._asked.set()

    async def run(self) -> None:
        """Ensure everything repeatedly, until cancelled."""
        while True:
            raise_if_cancelled()
            await wait_event(self._asked, self._every_seconds)
            self._asked.clear()
            try:
                await self.ensure()
            except (TemporalUnavailable, DatabaseUnavailable, RPCError) as error:
                log.warning("bootstrap.failed", extra={"reason": str(error)})

    async def ensure(self) -> None:
        """Ensure the namespace, the search attributes and every workflow that must run.

        Raises:
            TemporalUnavailable, RPCError, DatabaseUnavailable: try again later.
        """
        await ensure_namespace(self._client.temporal)
        await self._client.start("scheduler")
        await self._client.start("retention")
        await self.reconcile()

    async def reconcile(self) -> None:
        """Start the missing workflows, and poke those of hosts whose silence is a loss."""
        expected = await self._expected.expected()
        running = await self._running()
        await self._start_missing("task_group", expected.task_groups, expected.names, running)
        await self._start_missing("manager", expected.managers, expected.names, running)
        await self._start_missing("run", expected.runs, expected.names, running)
        for manager in expected.overdue_managers:
            await self._client.poke("manager", manager)

    async def _start_missing(
        self,
        kind: WorkflowKind,
        subjects: Iterable[UUID],
        names: Mapping[UUID, Names],
        running: frozenset[str],
    ) -> None:
        missing = [subject for subject in subjects if target(kind, subject).id not in running]
        if missing:
            log.info("bootstrap.starting", extra={"kind": kind, "count": len(missing)})
        for subject in missing:
            await self._client.start(kind, subject, names.get(subject))
            await asyncio.sleep(1 / STARTS_PER_SECOND)

    async def _running(self) -> frozenset[str]:
        types = ", ".join(f"'{name}'" for name in WORKFLOW_TYPES.values())
        query = f"WorkflowType IN ({types}) AND ExecutionStatus = 'Running'"
        found = self._client.temporal.list_workflows(query, page_size=1000, rpc_timeout=RPC_TIMEOUT)
        return frozenset([execution.id async for execution in found])
