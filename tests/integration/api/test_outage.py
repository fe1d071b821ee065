"""PostgreSQL or Temporal away: what the API says, what goes on, and that it comes back."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from api.service import ApiOptions, open_app_state
from mitosis.client.client import Client
from mitosis.contracts.errors import ApiUnavailable, DatabaseUnavailable
from mitosis.contracts.http import TaskGroupSpec
from mitosis.contracts.lifecycle import TaskGroupState
from mitosis.embedded.data_folder import DataFolder, ed25519_private_key, free_port
from mitosis.embedded.postgres import EmbeddedPostgres
from mitosis.store.pg import database as pg
from mitosis.store.store import StoreOptions
from tests.support.clusters import begin_with_cluster
from tests.support.http_api import NAMESPACE, Api, in_process_api, problem, ready
from tests.support.waiting import wait_until_async
from workflows.client import ControlClient, TemporalAddress


@pytest.fixture
async def own_postgres(tmp_path: Path) -> AsyncIterator[EmbeddedPostgres]:
    """A server that the test may stop."""
    folder = DataFolder(tmp_path / "data")
    folder.lock()
    begin_with_cluster(folder.path)
    server = EmbeddedPostgres(folder, options={"fsync": "off"})
    await server.start()
    yield server
    await server.stop()
    folder.release()


async def test_the_api_outlives_an_outage_of_the_database(own_postgres: EmbeddedPostgres) -> None:
    async with in_process_api(own_postgres.url()) as api, api.client() as client:
        await client.create_group(TaskGroupSpec(name="work"))
        assert (await ready(api))[0] == 200
        await own_postgres.stop()
        body = {"tasks": [{"command": ["true"]}]}
        answer = await api.call("POST", "/task-groups/work/tasks", json=body)
        with problem(answer, 503, "database_unavailable"):
            assert answer.headers["retry-after"].isdigit()
        assert (await ready(api))[0] == 503
        assert (await health(api)) == 200
        submitting = asyncio.create_task(
            client.submit("work", [{"command": ["true"]}], idempotency_key="k")
        )
        await own_postgres.start()
        assert len(await submitting) == 1
        await wait_until_async(lambda: is_ready(api))
        assert (await client.group("work")).tasks_total == 1


async def test_no_database_at_the_start_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pg, "ACQUIRE_SECONDS", 0.5)
    monkeypatch.setattr(pg, "CONNECT_SECONDS", 1)
    url = f"postgresql://nobody@127.0.0.1:{free_port()}/none"
    options = ApiOptions(
        store=StoreOptions(database_url=url),
        signing_key=ed25519_private_key(),
        temporal_namespace=NAMESPACE,
    )
    control = await ControlClient.open(TemporalAddress(f"127.0.0.1:{free_port()}"))
    with pytest.raises(DatabaseUnavailable):
        async with open_app_state(options, control):
            pass


@pytest.mark.spec("S002-118")
async def test_nothing_waits_for_a_temporal_that_is_away(database: str) -> None:
    """Create, submit and the verbs; claims and reports know nothing of Temporal at all."""
    control = await ControlClient.open(TemporalAddress(f"127.0.0.1:{free_port()}"))
    async with in_process_api(database, control) as api, api.client() as client:
        await client.create_group(TaskGroupSpec(name="work"))
        assert len(await client.submit("work", [{"command": ["true"]}])) == 1
        async with asyncio.timeout(30):
            assert (await client.close_group("work")).state is TaskGroupState.CLOSED
        status, document = await ready(api)
        assert (status, document) == (
            200,
            {"status": "degraded", "database": "ok", "temporal": "unavailable"},
        )


async def test_an_unreachable_api_is_named_by_its_address(database: str) -> None:
    address = f"http://127.0.0.1:{free_port()}"
    async with Client(address, "t", give_up_after=timedelta(seconds=0.5)) as client:
        with pytest.raises(ApiUnavailable, match=address):
            await client.me()


async def is_ready(api: Api) -> bool:
    return (await ready(api))[0] == 200


async def health(api: Api) -> int:
    return (await api.call("GET", "//health", token=None)).status_code
