"""A served API with a host that works on the group ``work``, for tests of routes over real sockets."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TypeVar
from uuid import UUID

from api.service import ApiOptions, RunningApi, admin_token, running_api
from mitosis.client.client import Client
from mitosis.contracts.agent_http import EnvironmentChange
from mitosis.contracts.http import RegisterManager, TaskGroupSpec
from mitosis.contracts.wire import ClaimTasks, Outcome, ReportTasks, TaskReport
from mitosis.embedded.data_folder import ed25519_private_key
from mitosis.store.control.control_store import ControlStore
from mitosis.store.leases.scheduler import assign_round
from mitosis.store.store import StoreOptions
from tests.support.http_api import NoTemporal, hello
from tests.support.manager_api import ManagerApi

KEY = ed25519_private_key()


class Served:
    """A served API, its admin, and a host that works on the group ``work``."""

    def __init__(self, api: RunningApi, token: str, client: Client, manager: ManagerApi) -> None:
        self.api, self.token, self.client, self.manager = api, token, client, manager
        self.manager_id = UUID(int=0)
        self.seq = 0
        self.epoch = 0

    @property
    def url(self) -> str:
        return self.api.url + "/api/v1/task-groups/work/events"

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}

    async def lease(self) -> None:
        await self.manager.hello(hello())
        await assign_round(self.api.app_state.store)
        (lease,) = (await self.client.group("work")).leases
        self.epoch, group = lease.epoch, lease.task_group_id
        await self.manager.take(self.epoch)
        for event in ("preparing", "prepared"):
            await self.manager.change_environment(
                group, EnvironmentChange(event=event, epoch=self.epoch, fingerprint="f")
            )

    async def run(self, count: int) -> list[int]:
        """Claim and report that many tasks."""
        self.seq += 1
        claim = ClaimTasks(
            epoch=self.epoch, claim_seq=self.seq, acked_seq=self.seq - 1, max_tasks=count
        )
        tasks = (await self.manager.claim(claim)).tasks
        reports = [
            TaskReport(task_id=t.task_id, attempt=t.attempt, outcome=Outcome.SUCCEEDED)
            for t in tasks
        ]
        await self.manager.report_tasks(ReportTasks(epoch=self.epoch, reports=reports))
        return [task.task_id for task in tasks]

    async def settle(self) -> None:
        """What the workflows do at the end of a closed group."""
        group = await self.client.close_group("work")
        stores, key = self.api.app_state, group.task_group_id
        await ControlStore(stores.store).finalize(key)
        await self.manager.goodbye(self.epoch)
        await self.manager.change_environment(key, EnvironmentChange(event="tear_down"))
        await self.manager.change_environment(key, EnvironmentChange(event="cleaned"))
        assert (await ControlStore(stores.store).settle(key)).settled


S = TypeVar("S", bound=Served)


@asynccontextmanager
async def served_group(database: str, kind: type[S]) -> AsyncIterator[S]:
    """The API over ``database``, its admin, a registered host, and the open group ``work``."""
    options = ApiOptions(
        store=StoreOptions(database_url=database), signing_key=KEY, temporal_namespace="mitosis"
    )
    async with running_api(options, NoTemporal()) as api:
        token = (await admin_token(api.app_state)).token
        async with Client(api.url, token, give_up_after=timedelta(seconds=5)) as client:
            registered = await client.register_manager(RegisterManager(name="host-1"))
            await client.create_group(TaskGroupSpec(name="work"))
            async with ManagerApi(api.url, registered.token) as manager:
                it = kind(api, token, client, manager)
                it.manager_id = registered.manager_id
                yield it
