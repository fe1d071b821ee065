"""Registration of a host and its credentials."""

from datetime import timedelta
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from api.auth import Subject, SubjectKind, TokenSigner
from manager_agent.registration import (
    Credentials,
    ensure_registered,
    manager_of,
    read_credentials,
)
from mitosis.cli.stack.agent import host_name
from mitosis.contracts.errors import ConfigurationError
from mitosis.contracts.http import RegisteredManager, RegisterManager
from mitosis.embedded.data_folder import ed25519_private_key


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


def token_of(kind: SubjectKind, number: int) -> str:
    """A token as the API issues them; the agent checks no signature."""
    signer = TokenSigner(ed25519_private_key())
    return signer.issue(Subject(kind, UUID(int=number), 1), timedelta(days=1)).token


async def test_the_token_of_a_registered_host_is_taken_and_kept(tmp_path: Path) -> None:
    async def register(_: RegisterManager) -> RegisteredManager:
        raise AssertionError("the host is registered already")

    spec, token = RegisterManager(name="host"), token_of("manager", 7)
    found = await ensure_registered(register, tmp_path, spec, token)
    assert found == Credentials(UUID(int=7), token)
    assert read_credentials(tmp_path) == found
    # What is kept wins over whatever the environment has at the next start.
    assert await ensure_registered(register, tmp_path, spec, token_of("manager", 8)) == found


@pytest.mark.parametrize("token", [None, "", "a.b", "a.b.c", "a.e30.c", token_of("user", 7)])
def test_any_other_token_names_no_host(token: str | None) -> None:
    assert manager_of(token) is None
