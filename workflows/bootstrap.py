"""Makes Temporal what we need it to be, from PostgreSQL alone: namespace, search attributes, workflows.

The control worker's process runs it, at start, every 30 s and when Temporal says that something is
missing (protocol P6). So the data of Temporal may be lost at any time.
"""

import asyncio
import logging
from collections.abc import Iterable
from datetime import timedelta
from uuid import UUID

from google.protobuf.duration_pb2 import Duration  # the language of temporalio.api
from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.namespace.v1 import NamespaceConfig
from temporalio.api.operatorservice.v1 import (
    AddSearchAttributesRequest,
    ListSearchAttributesRequest,
)
from temporalio.api.workflowservice.v1 import (
    DescribeNamespaceRequest,
    RegisterNamespaceRequest,
    UpdateNamespaceRequest,
)
from temporalio.service import RPCError, RPCStatusCode

from mitosis.contracts.errors import DatabaseUnavailable, TemporalUnavailable
from mitosis.contracts.names import SEARCH_ATTRIBUTES
from workflows.client import WORKFLOW_TYPES, ControlClient, Kind, target
from workflows.ports import ExpectedPort

log = logging.getLogger(__name__)

RETENTION = timedelta(days=30)
EVERY_SECONDS = 30.0
STARTS_PER_SECOND = 50
VISIBLE_AFTER_SECONDS = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4)
"""A new namespace is known to every part of the server only after a while (measured: 1 to 10 s)."""
RPC_TIMEOUT = timedelta(seconds=10)

_VALUE_TYPES = {
    "Keyword": IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD,
    "KeywordList": IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD_LIST,
    "Int": IndexedValueType.INDEXED_VALUE_TYPE_INT,
}


class Bootstrap:
    """Ensures, any number of times and in any number of processes."""

    def __init__(
        self, client: ControlClient, expected: ExpectedPort, every_seconds: float = EVERY_SECONDS
    ) -> None:
        self._client = client
        self._expected = expected
        self._every_seconds = every_seconds
        self._asked = asyncio.Event()

    def ask(self) -> None:
        """Look soon: something seems to be missing."""
        self._asked.set()

    async def run(self) -> None:
        """Ensure everything again and again, until cancelled."""
        while True:
            try:
                async with asyncio.timeout(self._every_seconds):
                    await self._asked.wait()
            except TimeoutError:
                pass
            self._asked.clear()
            try:
                await self.ensure()
            except (TemporalUnavailable, DatabaseUnavailable, RPCError) as error:
                log.warning("bootstrap.failed", extra={"reason": str(error)})

    async def ensure(self) -> None:
        """Namespace, search attributes, scheduler, and every workflow that must be running.

        Raises:
            TemporalUnavailable, RPCError, DatabaseUnavailable: try again later.
        """
        await self.ensure_server()
        await self._client.start("scheduler")
        await self.reconcile()

    async def ensure_server(self) -> None:
        """The namespace with its retention, and our search attributes."""
        await self._ensure_namespace()
        for pause in VISIBLE_AFTER_SECONDS:
            try:
                await self._ensure_search_attributes()
            except RPCError as error:
                if error.status is not RPCStatusCode.NOT_FOUND:
                    raise
                await asyncio.sleep(pause)
            else:
                return
        await self._ensure_search_attributes()

    async def reconcile(self) -> None:
        """Start the workflow of every subject that must have one and has none."""
        expected = await self._expected.expected()
        running = await self._running()
        await self._start_missing("task_group", expected.task_groups, running)
        await self._start_missing("manager", expected.managers, running)
        for manager in expected.overdue_managers:
            await self._client.poke("manager", manager)

    async def _start_missing(
        self, kind: Kind, subjects: Iterable[UUID], running: frozenset[str]
    ) -> None:
        missing = [subject for subject in subjects if target(kind, subject).id not in running]
        if missing:
            log.info("bootstrap.starting", extra={"kind": kind, "count": len(missing)})
        for subject in missing:
            await self._client.start(kind, subject)
            await asyncio.sleep(1 / STARTS_PER_SECOND)

    async def _running(self) -> frozenset[str]:
        types = ", ".join(f"'{name}'" for name in WORKFLOW_TYPES.values())
        query = f"WorkflowType IN ({types}) AND ExecutionStatus = 'Running'"
        found = self._client.temporal.list_workflows(query, page_size=1000, rpc_timeout=RPC_TIMEOUT)
        return frozenset([execution.id async for execution in found])

    async def _ensure_namespace(self) -> None:
        client = self._client.temporal
        service, namespace = client.workflow_service, client.namespace
        retention = Duration()
        retention.FromTimedelta(RETENTION)
        try:
            found = await service.describe_namespace(
                DescribeNamespaceRequest(namespace=namespace), timeout=RPC_TIMEOUT
            )
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
            log.info("bootstrap.namespace_missing", extra={"namespace": namespace})
            await service.register_namespace(
                RegisterNamespaceRequest(
                    namespace=namespace, workflow_execution_retention_period=retention
                ),
                timeout=RPC_TIMEOUT,
            )
            return
        kept = found.config.workflow_execution_retention_ttl.ToTimedelta()
        if kept < RETENTION:
            request = UpdateNamespaceRequest(
                namespace=namespace,
                config=NamespaceConfig(workflow_execution_retention_ttl=retention),
            )
            await service.update_namespace(request, timeout=RPC_TIMEOUT)

    async def _ensure_search_attributes(self) -> None:
        client = self._client.temporal
        found = await client.operator_service.list_search_attributes(
            ListSearchAttributesRequest(namespace=client.namespace), timeout=RPC_TIMEOUT
        )
        missing = {
            name: _VALUE_TYPES[value_type]
            for name, value_type in SEARCH_ATTRIBUTES.items()
            if name not in found.custom_attributes
        }
        if missing:
            log.info("bootstrap.search_attributes", extra={"missing": sorted(missing)})
            request = AddSearchAttributesRequest(
                namespace=client.namespace, search_attributes=missing
            )
            await client.operator_service.add_search_attributes(request, timeout=RPC_TIMEOUT)
