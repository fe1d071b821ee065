"""The version before beside this one, on the schema of this one: its wheel, built out of the history."""

import uuid
from pathlib import Path

import msgspec
import pytest

from mitosis.client.client import Client
from mitosis.contracts.agent_http import EnvironmentChange, Hello
from mitosis.contracts.control import Close, ReleaseReason, ReleaseRequest, VerbRequest
from mitosis.contracts.errors import UpgradeInProgress
from mitosis.contracts.http import RegisterManager, TaskGroupSpec
from mitosis.contracts.wire import ClaimTasks, Outcome, Renewal, ReportStatus, TaskReport
from mitosis.embedded.data_folder import free_port
from mitosis.store.leases.scheduler import assign_round
from mitosis.store.managers.release import release_lease
from mitosis.store.pg.tables import BLOCKED
from mitosis.store.processes.live import require_task_state
from tests.support.campaigns import World, world
from tests.support.earlier_versions import SCHEMA_0003, installed, running
from tests.support.kept_facts import compare
from tests.support.manager_api import ManagerApi
from tests.support.waiting import wait_until_async


class LaterRenewal(Renewal, kw_only=True):
    """With a field that the version before refuses."""

    progress: dict[str, float] = msgspec.field(default_factory=dict)


LaterRenewal.__name__ = Renewal.__name__


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The installed wheel of the version before."""
    return installed(SCHEMA_0003, tmp_path_factory.mktemp("before"))


def admin_token(data: Path) -> str:
    return (data / "secrets" / "admin-token").read_text().strip()


async def is_older(w: World) -> bool:
    """Whether what this version alone knows may not be written."""
    async with w.database.connection() as connection:
        try:
            await require_task_state(connection, BLOCKED)
        except UpgradeInProgress:
            return True
    return False


async def work(client: Client, url: str, w: World) -> None:
    """A task group from its creation to its result; what the version before writes marks hosts as well."""
    group = await client.create_group(TaskGroupSpec(name="old-api"))
    await client.submit(group.task_group_id, [{"command": ["true"]}])
    registered = await client.register_manager(RegisterManager(name="host"))
    async with ManagerApi(url, registered.token) as agent:
        answer = await agent.hello(
            Hello(
                incarnation=1,
                machine_id="m",
                boot_id="b",
                host_name="h",
                cores=(0,),
                agent_version="2",
            )
        )
        assert answer.request_fields == {}
        await w.rows("INSERT INTO fleet_changes (xid, manager_id) VALUES ('3', 0)")  # as in use
        await compare(w.store, kept=False)
        await assign_round(w.store)
        (lease,) = (await client.group(group.task_group_id)).leases
        await agent.take(lease.epoch)
        for event in ("preparing", "prepared"):
            change = EnvironmentChange.model_validate(
                {"event": event, "epoch": lease.epoch, "fingerprint": "f"}
            )
            await agent.change_environment(group.task_group_id, change)
        await compare(w.store)
        claimed = await agent.claim(
            ClaimTasks(epoch=lease.epoch, claim_seq=1, acked_seq=0, max_tasks=5)
        )
        (task,) = claimed.tasks
        renewal = LaterRenewal(incarnation=1, epoch=lease.epoch, progress={"1": 0.5})
        assert (await agent.renew(renewal)).standing == "active", "the later field was left out"
        report = TaskReport(task_id=task.task_id, attempt=task.attempt, outcome=Outcome.SUCCEEDED)
        reported = await agent.report(lease.epoch, [msgspec.json.encode(report)])
        assert reported.statuses == [ReportStatus.COMMITTED]
        verb = VerbRequest(task_group_id=group.task_group_id, verb=Close())
        await w.control.apply(verb)
        await w.control.finalize(group.task_group_id)
        release = ReleaseRequest(
            manager_id=registered.manager_id, epoch=lease.epoch, reason=ReleaseReason.GROUP_ENDED
        )
        await release_lease(w.store, release)
        for event in ("tear_down", "cleaned"):
            change = EnvironmentChange.model_validate({"event": event})
            await agent.change_environment(group.task_group_id, change)
    await w.control.settle(group.task_group_id)
    await compare(w.store)
    assert (await client.group(group.task_group_id)).result == "success"


async def test_our_agent_and_scheduler_work_with_the_api_of_the_version_before(
    before: Path, database: str, data_dir: Path
) -> None:
    port = free_port()
    settings = {
        "MITOSIS_DATABASE_URL": database,
        "MITOSIS_TEMPORAL_ADDRESS": "127.0.0.1:1",
        "MITOSIS_API__PORT": str(port),
    }
    async with world(database) as w:
        with running(before, data_dir, "api", **settings):
            url = f"http://127.0.0.1:{port}"
            async with Client(url, admin_token(data_dir)) as client:
                await work(client, url, w)
            assert await is_older(w)
        await w.check()
        assert not await is_older(w)


async def test_a_control_worker_of_the_version_before_ends_groups_of_this_one(
    before: Path, database: str, data_dir: Path, temporal_server: str
) -> None:
    settings = {
        "MITOSIS_DATABASE_URL": database,
        "MITOSIS_TEMPORAL_ADDRESS": temporal_server,
        "MITOSIS_TEMPORAL__NAMESPACE": f"before-{uuid.uuid4().hex[:8]}",
    }
    async with world(database) as w:
        group = await w.group()
        await w.submit(group, 3)
        await w.cancel(group)
        with running(before, data_dir, "worker", **settings):

            async def settled() -> bool:
                return (await w.control.observe_task_group(group)).settled

            await wait_until_async(settled, timeout=60)
            assert await is_older(w)
        await w.check()
        assert not await is_older(w)
