"""Fixtures for tests with time skipping."""

from collections.abc import AsyncIterator

import pytest
from temporalio.testing import WorkflowEnvironment

from tests.workflow.servers import time_skipping


@pytest.fixture
async def skipping() -> AsyncIterator[WorkflowEnvironment]:
    """A Temporal server of its own that jumps over timers while somebody waits for a result."""
    async with time_skipping() as environment:
        yield environment
