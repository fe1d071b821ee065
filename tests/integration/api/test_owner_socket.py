"""The unix socket of a local API: its user needs no token, no other user gets in, or is sent anything."""

import asyncio
import shutil
import tempfile
import time
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from datetime import timedelta
from pathlib import Path

import httpx2
import pytest

from api.service import ApiOptions, RunningApi, running_api
from manager_agent.registration import facts_of
from mitosis.cli.stack import whole_stack
from mitosis.client.client import Client
from mitosis.contracts.allocation import WorkerAllocationPlan
from mitosis.contracts.errors import (
    ApiUnavailable,
    ConfigurationError,
    Unauthenticated,
)
from mitosis.contracts.http import TaskGroupSpec
from mitosis.embedded.data_folder import DataFolder, ed25519_private_key
from mitosis.store.store import StoreOptions
from mitosis.store.users.accounts import create_user
from mitosis.store.users.administration import set_locked
from mitosis.unix_socket import socket_of
from tests.support.another_user import NOBODY, as_nobody, listener_of_nobody, needs_root
from tests.support.http_api import NAMESPACE, NoTemporal
from tests.support.waiting import wait_until_async

AT_ONCE = timedelta(0)
CONNECT = """
import socket, sys
with socket.socket(socket.AF_UNIX) as connection:
    try:
        connection.connect(sys.argv[1])
    except PermissionError:
        sys.exit("closed folder")
    try:
        connection.sendall(b"GET /api/v1/account HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n")
        print(connection.recv(100))
    except ConnectionError:
        print(b"")
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """A private folder with a short path, below one that every user may enter."""
    made = Path(tempfile.mkdtemp(prefix="mt-own-"))
    yield made
    shutil.rmtree(made)


def leave_a_socket(folder: Path) -> None:
    """As a killed API does."""
    (folder / "api.sock").touch()


def content(folder: Path) -> list[Path]:
    return list(folder.iterdir())


def taken_away(file: Path) -> None:
    file.unlink()


def allow(path: Path, mode: int) -> None:
    path.chmod(mode)


def folder_of_all(path: Path) -> Path:
    path.mkdir()
    path.chmod(0o777)
    return path


@pytest.fixture
async def api(database: str, folder: Path) -> AsyncIterator[RunningApi]:
    leave_a_socket(folder)
    options = ApiOptions(
        store=StoreOptions(database_url=database),
        signing_key=ed25519_private_key(),
        temporal_namespace=NAMESPACE,
        owner_socket=folder / "api.sock",
    )
    async with running_api(options, NoTemporal()) as running:
        yield running
    assert content(folder) == []


def client(address: str | Path, token: str | None = None) -> Client:
    url = f"unix:{address}" if isinstance(address, Path) else address
    return Client(url, token, give_up_after=AT_ONCE)


async def test_its_own_user_is_the_administrator_without_a_token(
    api: RunningApi, folder: Path
) -> None:
    async with client(folder / "api.sock") as owner, client(api.url) as stranger:
        assert (await owner.me()).is_admin
        plan = WorkerAllocationPlan(worker_count=1)
        await owner.create_group(TaskGroupSpec(name="own", worker_allocation_plan=plan))
        async with aclosing(owner.events("own")) as events:  # type: ignore[type-var]
            assert (await anext(events)).kind == "state"
        with pytest.raises(Unauthenticated):
            await stranger.me()


async def test_a_token_says_who_it_is_over_the_socket_too(api: RunningApi, folder: Path) -> None:
    store = api.app_state.store
    ann = await create_user(store, "ann", "planted words")
    async with client(folder / "api.sock") as person:
        await person.login("ann", "planted words")
        assert (await person.me()).user_id == ann.user_id
    async with client(folder / "api.sock", "not.a.token") as person:
        with pytest.raises(Unauthenticated):
            await person.me()


@pytest.mark.parametrize("header", ["Basic YTpi", "Bearer", ""])
async def test_another_authorization_is_refused_over_the_socket(
    api: RunningApi, folder: Path, header: str
) -> None:
    transport = httpx2.AsyncHTTPTransport(uds=str(folder / "api.sock"))
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as raw:
        assert (await raw.get("/api/v1/me")).status_code == 200
        assert (await raw.get("/api/v1/me", headers={"Authorization": header})).status_code == 401


async def test_a_locked_administrator_is_refused(api: RunningApi, folder: Path) -> None:
    store = api.app_state.store
    await set_locked(store, "admin", locked=True)
    async with client(folder / "api.sock") as owner:
        with pytest.raises(Unauthenticated, match="locked"):
            await owner.me()


async def connecting(path: Path) -> tuple[str, str]:
    """What another user reads there, and the error."""
    process = await asyncio.create_subprocess_exec(
        *as_nobody(CONNECT, str(path)), stdout=PIPE, stderr=PIPE, cwd="/"
    )
    out, err = await process.communicate()
    return out.decode(), err.decode()


@needs_root
async def test_another_user_gets_no_answer_even_where_the_folder_is_open(
    api: RunningApi, folder: Path
) -> None:
    path = folder / "api.sock"
    assert await connecting(path) == ("", "closed folder\n")
    allow(folder, 0o755)
    assert await connecting(path) == ("", "closed folder\n")
    allow(path, 0o777)
    assert await connecting(path) == ("b''\n", "")


@needs_root
@pytest.mark.parametrize("inside", ["a folder of that user", "the own folder"])
async def test_nothing_is_sent_to_a_socket_of_another_user(folder: Path, inside: str) -> None:
    allow(folder, 0o755)
    path = folder_of_all(folder / "run") / "api.sock"
    with listener_of_nobody(str(path)) as listener:
        allow(path.parent, 0o755)
        if inside == "a folder of that user":
            shutil.chown(path.parent, NOBODY)
        async with client(path, "planted") as one:
            with pytest.raises(ApiUnavailable, match=r"of this user alone|serves it"):
                await one.me()
            if inside == "a folder of that user":
                with pytest.raises(ApiUnavailable, match="of this user alone"):
                    await anext(one.events("own"))
        listener.kill()
        assert listener.stdout is not None
        assert "planted" not in listener.stdout.read()


async def test_the_token_for_the_port_is_short_lived_and_replaced(
    api: RunningApi, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(whole_stack, "ADMIN_TOKEN_PAUSE_SECONDS", 0.01)
    data = DataFolder(folder / "data")
    file = data.secret_path("admin-token")
    async with whole_stack.keeping_admin_token(data, api):
        facts = facts_of(file.read_text())
        assert facts is not None
        assert facts.exp - time.time() <= timedelta(days=1).total_seconds()
        taken_away(file)
        await wait_until_async(file.exists)
        async with client(api.url, file.read_text()) as admin:
            assert (await admin.me()).is_admin
    shutil.rmtree(data.path)


async def test_without_its_folder_the_socket_cannot_be_reached(folder: Path) -> None:
    async with client(folder / "none" / "api.sock") as one:
        with pytest.raises(ApiUnavailable, match="cannot be reached"):
            await one.me()


def test_the_path_in_an_address_is_absolute() -> None:
    assert socket_of("unix:/run/api.sock") == Path("/run/api.sock")
    assert socket_of("http://unix:1") is None
    with pytest.raises(ConfigurationError):
        socket_of("unix:api.sock")
