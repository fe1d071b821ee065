"""One stack with a prepared agent for all tests of a module, and what its commands run with."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.support.program import clean_environment, running_up


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The data folder of a running stack."""
    folder = tmp_path_factory.mktemp("stack") / "data"
    with running_up(folder, prepared_agent=True):
        yield folder


@pytest.fixture
def env(stack: Path) -> Mapping[str, str]:
    """The environment of a command on it."""
    return clean_environment(MITOSIS_DATA_DIR=str(stack))
