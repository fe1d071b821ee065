"""Long-polls over real sockets (protocol P7): woken at once, freed with their client, let go by a stop."""

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta

import httpx2
import pytest

from api.service import ApiOptions, RunningApi, admin_token, running_api
from mitosis.client.client import Client
from mitosis.contracts.agent_http import EnvironmentChange
from mitosis.contracts.errors import ApiUnavailable
from mitosis.contracts.http import RegisterManager, TaskGroupInfo, TaskGroupSpec
from mitosis.contracts.lifecycle import TaskGroupState
from mitosis.contracts.wire import ClaimAnswer, ClaimTasks
from mitosis.embedded.data_folder import ed25519_private_key
from mitosis.store.leases.scheduler import assign_round
from mitosis.store.store import StoreOptions
from tests.support.http_api import NoTemporal, hello
from tests.support.manager_api import ManagerApi
from tests.support.waiting import wait_until_async

KEY = ed25519_private_key()
OK = {"command": ["true"]}
SUBMIT = """
import asyncio, sys
from uuid import UUID
from mitosis.contracts.task import TaskSubmission
from mitosis.contracts.wire import SubmitTasks
from mitosis.store.pg.database import Database
from mitosis.store.store import Store
from mitosis.store.tasks.submit import submit_tasks

async def main(url, group):
    async with Database.open(url) as database:
        task = TaskSubmission(command=["true"])
        await submit_tasks(Store(database=database), UUID(group), SubmitTasks(tasks=[task]))

asyncio.run(main(*sys.argv[1:]))
"""


class Fleet:
    """A served API, its admin, and one host with a lease on a group that has no task left."""

    def __init__(self, api: RunningApi, client: Client, manager: ManagerApi) -> None:
        self.api, self.client, self.manager = api, client, manager
        self.epoch = 0
        self.seq = 1

    async def ready(self) -> None:
        await self.client.create_group(TaskGroupSpec(name="work"))
        await self.client.submit("work", [OK])
        await self.manager.hello(hello())
        await assign_round(self.api.app_state.store)
        (lease,) = (await self.group()).leases
        self.epoch = lease.epoch
        group_id = (await self.manager.take(self.epoch)).task_group_id
        for change in (
            EnvironmentChange(event="preparing", epoch=self.epoch, fingerprint="f"),
            EnvironmentChange(event="prepared", epoch=self.epoch, fingerprint="f"),
        ):
            await self.manager.change_environment(group_id, change)
        assert len((await self.claim(0)).tasks) == 1

    async def group(self) -> TaskGroupInfo:
        return await self.client.group("work")

    async def claim(self, wait_seconds: float) -> ClaimAnswer:
        claim = ClaimTasks(
            epoch=self.epoch,
            claim_seq=self.seq,
            acked_seq=self.seq - 1,
            max_tasks=10,
            wait_seconds=wait_seconds,
        )
        answer = await self.manager.claim(claim)
        self.seq += 1
        return answer

    async def held(self) -> asyncio.Task[ClaimAnswer]:
        """A claim that waits in the API."""
        claiming = asyncio.create_task(self.claim(30))
        await wait_until_async(lambda: self.waiters == 1)
        return claiming

    @property
    def waiters(self) -> int:
        wake = self.api.app_state.store.wake
        assert wake is not None
        return wake.waiting


def options(database: str) -> ApiOptions:
    return ApiOptions(
        store=StoreOptions(database_url=database), signing_key=KEY, temporal_namespace="mitosis"
    )


@pytest.fixture
async def fleet(database: str) -> AsyncIterator[Fleet]:
    async with running_api(options(database), NoTemporal()) as api:
        token = (await admin_token(api.app_state)).token
        async with Client(api.url, token, give_up_after=timedelta(seconds=2)) as client:
            made = await client.register_manager(RegisterManager(name="host"))
            async with ManagerApi(api.url, made.token) as manager:
                it = Fleet(api, client, manager)
                await it.ready()
                yield it


async def test_a_submit_wakes_a_held_claim(fleet: Fleet) -> None:
    claiming = await fleet.held()
    began = time.monotonic()
    ids = await fleet.client.submit("work", [OK])
    assert [task.task_id for task in (await claiming).tasks] == ids
    assert time.monotonic() - began < 20  # of the 30 that it was ready to wait
    assert fleet.waiters == 0


@pytest.mark.new_sessions
async def test_a_submit_of_another_process_wakes_it_too(fleet: Fleet, database: str) -> None:
    claiming = await fleet.held()
    group_id = str((await fleet.group()).task_group_id)
    argv = [sys.executable, "-c", SUBMIT, database, group_id]
    await asyncio.to_thread(subprocess.run, argv, check=True, timeout=30)
    assert len((await asyncio.wait_for(claiming, 20)).tasks) == 1


async def test_an_empty_wait_is_answered_in_time(fleet: Fleet) -> None:
    began = time.monotonic()
    assert (await fleet.claim(0.2)).tasks == []
    assert 0.2 <= time.monotonic() - began < 20


async def test_a_held_claim_holds_no_connection(database: str) -> None:
    few = replace(options(database), store=StoreOptions(database_url=database, pool_size=1))
    async with running_api(few, NoTemporal()) as api:
        token = (await admin_token(api.app_state)).token
        async with Client(api.url, token) as client:
            made = await client.register_manager(RegisterManager(name="host"))
            async with ManagerApi(api.url, made.token) as manager:
                fleet = Fleet(api, client, manager)
                await fleet.ready()
                claiming = await fleet.held()
                assert (await fleet.group()).tasks_unfinished == 1
                await client.submit("work", [OK])
                assert len((await claiming).tasks) == 1


async def test_a_client_that_leaves_frees_its_waiter_and_loses_nothing(fleet: Fleet) -> None:
    claiming = await fleet.held()
    claiming.cancel()
    await asyncio.wait([claiming])
    await wait_until_async(lambda: fleet.waiters == 0)
    ids = await fleet.client.submit("work", [OK])
    assert [task.task_id for task in (await fleet.claim(0)).tasks] == ids


async def test_a_stop_does_not_wait_for_held_claims(database: str) -> None:
    patient = replace(options(database), stop_after=timedelta(seconds=60))
    async with running_api(patient, NoTemporal()) as api:
        token = (await admin_token(api.app_state)).token
        async with Client(api.url, token) as client:
            made = await client.register_manager(RegisterManager(name="host"))
        manager = ManagerApi(api.url, made.token)
        async with Client(api.url, token) as client:
            fleet = Fleet(api, client, manager)
            await fleet.ready()
        claiming = await fleet.held()
        began = time.monotonic()
    assert time.monotonic() - began < 20
    with pytest.raises(ApiUnavailable) as refused:
        await claiming
    assert refused.value.facts["retry_after_seconds"] == 1
    manager.close()


@pytest.mark.spec("S000-115")
async def test_waiting_for_a_group(fleet: Fleet) -> None:
    before = await fleet.group()
    same = await fleet.client.wait("work", until="complete", timeout=timedelta(seconds=0.2))
    assert same.state is TaskGroupState.OPEN
    changing = asyncio.create_task(fleet.client.wait("work", until="changed"))
    ending = asyncio.create_task(fleet.client.wait("work", until="complete"))
    await wait_until_async(lambda: fleet.waiters >= 2)
    await fleet.client.submit("work", [OK])
    changed = await asyncio.wait_for(changing, 20)
    assert (changed.tasks_total, before.tasks_total) == (2, 1)
    await fleet.client.cancel("work")
    assert (await asyncio.wait_for(ending, 20)).state is TaskGroupState.CANCELLED


async def test_many_waiters_are_served_by_few_connections(fleet: Fleet) -> None:
    async with httpx2.AsyncClient(
        base_url=fleet.api.url,
        headers=fleet.client._api._http.headers,
        limits=httpx2.Limits(max_connections=200),
        trust_env=False,
        timeout=30,
    ) as http:
        path = "/api/v1/task-groups/work?wait_seconds=20&until=complete"
        waiting = [asyncio.create_task(http.get(path)) for _ in range(100)]
        await wait_until_async(lambda: fleet.waiters == 100, 20)
        await fleet.client.cancel("work")
        answers = await asyncio.gather(*waiting)
    assert {answer.json()["state"] for answer in answers} == {"cancelled"}
