"""Registration of a host and its credentials."""

from pathlib import Path
from uuid import UUID, uuid4

import pytest

from manager_agent.registration import Credentials, ensure_registered, read_credentials
from mitosis.cli.stack.agent import host_name
from mitosis.contracts.errors import ConfigurationError
from mitosis.contracts.http import RegisteredManager, RegisterManager


@pytest.mark.spec("S002-107")
async def test_a_host_registers_once_and_keeps_its_token_private(tmp_path: Path) -> None:
    state, calls = tmp_path / "state", []

    async def register(spec: RegisterManager) -> RegisteredManager:
        calls.append(spec)
        return RegisteredManager.model_validate(
            {
                "manager_id": uuid4(),
                "name": "host",
                "token": "secret",
                "expires_at": "2030-01-01T00:00:00Z",
            }
        )

    first = await ensure_registered(register, state, RegisterManager(name="host"))
    assert await ensure_registered(register, state, RegisterManager(name="host")) == first
    assert len(calls) == 1
    assert (state / "manager.json").stat().st_mode & 0o777 == 0o600
    assert "secret" not in repr(first)
    assert read_credentials(state) == first
    assert Credentials(first.manager_id, "secret") == first


def test_credentials_that_are_none_are_refused(tmp_path: Path) -> None:
    (tmp_path / "manager.json").write_text("{}")
    with pytest.raises(ConfigurationError, match="not a manager's credentials"):
        read_credentials(tmp_path)


@pytest.mark.parametrize(
    ("called", "name"), [("node-7", "node-7"), (str(UUID(int=7)), f"host-{UUID(int=7)}")]
)
def test_a_machine_that_is_called_by_a_uuid_can_register(
    called: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: called)
    assert RegisterManager(name=host_name()).name == name
