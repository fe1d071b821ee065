"""API, PostgreSQL or Temporal away under long tasks: nothing runs twice, nothing is lost, all goes on.

The proportions of production (60 s away, 120 s tasks, a host lost after 90 s of silence, contact every 3 s)
with every time divided by 30; ``make pressure`` runs the real ones.
"""

import asyncio
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest
from psycopg import AsyncConnection

from api.service import ApiOptions, admin_token, running_api
from mitosis.client.client import Client
from mitosis.contracts.errors import DatabaseUnavailable
from mitosis.contracts.http import TaskGroupSpec
from mitosis.embedded.data_folder import DataFolder, ed25519_private_key, free_port
from mitosis.embedded.postgres import EmbeddedPostgres
from mitosis.store.pg.database import Database
from mitosis.store.store import StoreOptions
from tests.pressure.outage import PARTS, Scale, site, survive
from tests.support.clusters import begin_with_cluster
from tests.support.http_api import NAMESPACE, NoTemporal, in_process_api, problem
from tests.support.waiting import wait_until_async


@pytest.mark.timeout(120)
@pytest.mark.spec("S002-118")
async def test_each_part_away_alone_and_all_at_once_re_execute_nothing(tmp_path: Path) -> None:
    async with site(tmp_path, Scale().divided(30)) as one:
        assert readable_by_others(one.data.path) == []
        await survive(one, [[part] for part in PARTS] + [list(PARTS)])


def readable_by_others(folder: Path) -> list[str]:
    """Files of the servers, logs and secrets among them, that have a mode other than 0600 or 0700."""
    files = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    assert {"temporal.db", "temporal.log", "postgres.log"} <= {path.name for path in files}
    programs = folder / "programs"
    return [
        str(path)
        for path in files
        if path.stat().st_mode & 0o077 and not path.is_relative_to(programs)
    ]


async def test_a_request_that_a_stopping_api_cuts_short_may_be_made_again(database: str) -> None:
    """A submit that waits for a lock is answered 503, so that the SDK makes it again."""
    key = ed25519_private_key()
    options = ApiOptions(
        store=StoreOptions(database_url=database),
        signing_key=key,
        temporal_namespace=NAMESPACE,
        port=free_port(),
        stop_after=timedelta(0),
    )
    async with await AsyncConnection.connect(database) as blocker, AsyncExitStack() as exits:
        first = AsyncExitStack()
        running = await first.enter_async_context(running_api(options, NoTemporal()))
        token = (await admin_token(running.app_state)).token
        client = await exits.enter_async_context(Client(running.url, token))
        await client.create_group(TaskGroupSpec(name="work"))
        await blocker.execute("SELECT FROM group_live FOR UPDATE")
        submitting = asyncio.create_task(client.submit("work", [{"command": ["true"]}]))
        await until_waiting(running.app_state.store.database)
        await first.aclose()
        await blocker.rollback()
        await exits.enter_async_context(running_api(options, NoTemporal()))
        assert len(await submitting) == 1
        assert (await client.group("work")).tasks_total == 1


async def until_waiting(database: Database) -> None:
    async def waiting() -> bool:
        async with database.connection() as connection:
            found = await connection.execute(
                "SELECT FROM pg_stat_activity"
                " WHERE datname = current_database() AND wait_event_type = 'Lock'"
            )
            return found.rowcount > 0

    await wait_until_async(waiting)


async def test_a_database_that_comes_back_is_found_at_once(tmp_path: Path) -> None:
    """However long it was away: the pauses of the pool do not grow with the outage."""
    folder = DataFolder(tmp_path / "data")
    folder.lock()
    begin_with_cluster(folder.path)
    server = EmbeddedPostgres(folder, options={"fsync": "off"})
    await server.start()
    try:
        async with Database.open(server.url()) as database:
            await database.check()
            await server.stop()
            for _ in range(3):  # two wait 5 s; the old pauses were 1, 2, 4, 8 and 16 s
                with pytest.raises(DatabaseUnavailable):
                    await database.check()
            await server.start()
            async with asyncio.timeout(3):
                await database.check()
    finally:
        await server.stop()
        folder.release()


async def test_a_manager_that_is_not_there_names_the_field(database: str) -> None:
    nobody = str(uuid4())
    async with in_process_api(database) as api:
        body = {"name": "work", "manager_ids": [nobody]}
        answer = await api.call("POST", "/task-groups", json=body)
        with problem(answer, 404, "not_found") as document:
            assert (document["field"], document["manager_id"]) == ("manager_ids", nobody)
        await api.call("POST", "/task-groups", json={"name": "work"})
        for method in ("POST", "DELETE"):
            answer = await api.call(
                method, "/task-groups/work/managers", json={"manager_ids": [nobody]}
            )
            with problem(answer, 404, "not_found") as document:
                assert document["field"] == "manager_ids"
