"""The data folder of a stack that runs, for tests of what a command finds there."""

import os
from pathlib import Path

import pytest

from mitosis.cli.connection import StackConnection, write_connection

HERE = "http://127.0.0.1:1"


@pytest.fixture(autouse=True)
def own_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith("MITOSIS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def stack(data_dir: Path) -> StackConnection:
    """A data folder as `mitosis up` leaves it while it runs."""
    data_dir.mkdir(mode=0o700)
    connection = StackConnection(
        api_url=HERE,
        api_socket=data_dir / "api.sock",
        temporal_address="127.0.0.1:2",
        temporal_namespace="mitosis",
        pid=os.getpid(),
    )
    write_connection(data_dir, connection)
    return connection
