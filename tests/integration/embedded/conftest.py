"""A data folder and a Temporal server of a test."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from mitosis.embedded.data_folder import DataFolder
from mitosis.embedded.temporal import EmbeddedTemporal


@pytest.fixture
def folder(data_dir: Path) -> Iterator[DataFolder]:
    folder = DataFolder(data_dir)
    folder.lock()
    yield folder
    folder.release()


@pytest.fixture
async def server(folder: DataFolder) -> AsyncIterator[EmbeddedTemporal]:
    server = EmbeddedTemporal(folder)
    await server.start()
    yield server
    await server.stop()
