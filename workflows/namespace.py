"""Ensures our namespace on a Temporal server, its retention of 30 days, and its search attributes.

On a server that we may not administer (a managed one, say) its operator does this: what is not permitted
is logged and skipped.
"""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from google.protobuf.duration_pb2 import Duration  # the messages of temporalio.api
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
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from mitosis.contracts.temporal_names import SEARCH_ATTRIBUTES

log = logging.getLogger(__name__)

RETENTION = timedelta(days=30)
RPC_TIMEOUT = timedelta(seconds=10)
VISIBLE_AFTER_SECONDS = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4)
"""Pauses until every part of the server knows a new namespace (measured: 1 to 10 s)."""

_VALUE_TYPES = {
    "Keyword": IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD,
    "KeywordList": IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD_LIST,
    "Int": IndexedValueType.INDEXED_VALUE_TYPE_INT,
}
_NOT_OURS = (RPCStatusCode.PERMISSION_DENIED, RPCStatusCode.UNIMPLEMENTED)


async def ensure_namespace(client: Client) -> None:
    """Create or change the namespace of ``client`` as needed. Several processes may do it at once.

    Raises:
        RPCError: the server does not answer.
    """
    await _ensure_exists(client)
    for pause in VISIBLE_AFTER_SECONDS:
        try:
            await _ensure_search_attributes(client)
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
            await asyncio.sleep(pause)
        else:
            return
    await _ensure_search_attributes(client)


async def _ensure_exists(client: Client) -> None:
    request = DescribeNamespaceRequest(namespace=client.namespace)
    try:
        found = await client.workflow_service.describe_namespace(request, timeout=RPC_TIMEOUT)
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
        await _register(client)
        return
    if found.config.workflow_execution_retention_ttl.ToTimedelta() < RETENTION:
        config = NamespaceConfig(workflow_execution_retention_ttl=_retention())
        with _as_far_as_permitted("retention"):
            await client.workflow_service.update_namespace(
                UpdateNamespaceRequest(namespace=client.namespace, config=config),
                timeout=RPC_TIMEOUT,
            )


async def _register(client: Client) -> None:
    log.info("namespace.missing", extra={"namespace": client.namespace})
    request = RegisterNamespaceRequest(
        namespace=client.namespace, workflow_execution_retention_period=_retention()
    )
    with _as_far_as_permitted("namespace"):
        await client.workflow_service.register_namespace(request, timeout=RPC_TIMEOUT)


async def _ensure_search_attributes(client: Client) -> None:
    with _as_far_as_permitted("search attributes"):
        found = await client.operator_service.list_search_attributes(
            ListSearchAttributesRequest(namespace=client.namespace), timeout=RPC_TIMEOUT
        )
        missing = {
            name: _VALUE_TYPES[value_type]
            for name, value_type in SEARCH_ATTRIBUTES.items()
            if name not in found.custom_attributes
        }
        if missing:
            log.info("namespace.search_attributes", extra={"missing": sorted(missing)})
            request = AddSearchAttributesRequest(
                namespace=client.namespace, search_attributes=missing
            )
            await client.operator_service.add_search_attributes(request, timeout=RPC_TIMEOUT)


@contextmanager
def _as_far_as_permitted(what: str) -> Iterator[None]:
    try:
        yield
    except RPCError as error:
        if error.status in _NOT_OURS:
            log.warning("namespace.not_permitted", extra={"what": what, "reason": error.message})
        elif error.status is not RPCStatusCode.ALREADY_EXISTS:  # another process has just done it
            raise


def _retention() -> Duration:
    retention = Duration()
    retention.FromTimedelta(RETENTION)
    return retention
