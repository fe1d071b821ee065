"""An agent that does one thing at a time: its group, one task, one report; the fences of the batches."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import msgspec
import pytest

from mitosis.contracts.agent_http import EnvironmentChange
from mitosis.contracts.errors import Conflict, InvalidRequest, LeaseLost
from mitosis.contracts.http import TaskGroupSpec
from mitosis.contracts.lifecycle import LeaseState
from mitosis.contracts.wire import (
    ClaimedTask,
    ClaimTasks,
    LeaseStanding,
    Outcome,
    ReportStatus,
    TaskReport,
)
from mitosis.store.leases.granting import take_lease
from mitosis.store.leases.scheduler import assign_round
from mitosis.store.managers.environments import change_environment
from tests.support.http_api import Api, in_process_api, problem, said_hello


@pytest.fixture
async def api(database: str) -> AsyncIterator[Api]:
    async with in_process_api(database) as opened:
        yield opened


async def submitted(api: Api, count: int) -> None:
    async with api.client() as client:
        await client.create_group(TaskGroupSpec(name="work"))
        await client.submit("work", [{"command": ["echo", str(n)]} for n in range(count)])
    await assign_round(api.app_state.store)


def ended(task: ClaimedTask, attempt: int | None = None) -> TaskReport:
    return TaskReport(
        task_id=task.task_id,
        attempt=attempt or task.attempt,
        outcome=Outcome.SUCCEEDED,
        detail=msgspec.Raw(b'{"stdout":"\\u0000"}'),
    )


@pytest.mark.spec("S002-91", "S002-94", "S002-95")
async def test_a_campaign_by_single_calls(api: Api) -> None:
    async with said_hello(api) as (manager, _):
        assert await manager.task_group() is None
        await submitted(api, 2)
        offer = await manager.task_group()
        assert offer is not None
        assert (offer.task_group_name, offer.lease_state) == ("work", LeaseState.OFFERED)
        assert offer.worker_allocation_plan.worker_count == 1
        with pytest.raises(LeaseLost) as refused:  # an offer that is not taken gives no right
            await manager.claim_one(offer.epoch, 1)
        assert refused.value.facts["standing"] == "gone"
        epoch = (await manager.take(offer.epoch)).epoch
        for event in ("preparing", "prepared"):
            change = EnvironmentChange(event=event, epoch=epoch, fingerprint="f")
            await manager.change_environment(offer.task_group_id, change)
        held = await manager.task_group()
        assert held is not None
        assert held.lease_state is LeaseState.ACTIVE
        for number in (1, 2):
            task = await manager.claim_one(epoch, number)
            assert task is not None
            assert msgspec.json.decode(task.spec)["command"] == ["echo", str(number - 1)]
            again = await manager.claim_one(epoch, number)
            assert again == task, "the same number is the same claim"
            late = await manager.report_one(epoch, ended(task, attempt=task.attempt + 1))
            assert late.status is ReportStatus.SUPERSEDED, "another attempt's report"
            answer = await manager.report_one(epoch, ended(task))
            assert (answer.status, answer.standing) == (
                ReportStatus.COMMITTED,
                LeaseStanding.ACTIVE,
            )
            assert (await manager.report_one(epoch, ended(task))).status is ReportStatus.DUPLICATE
        assert await manager.claim_one(epoch, 3) is None
    async with api.client() as client:
        done = await client.group("work")
        assert (done.tasks_succeeded, done.tasks_unfinished) == (2, 0)
        details = [task.detail async for task in client.tasks("work")]
        assert details == [{"stdout": "\ufffd"}] * 2


async def test_a_single_claim_waits_for_work(api: Api) -> None:
    async with said_hello(api) as (manager, _):
        epoch = await working(api, 1)
        first = await manager.claim_one(epoch, 1)
        assert first is not None
        waiting = asyncio.create_task(manager.claim_one(epoch, 2, wait=timedelta(seconds=30)))
        async with api.client() as client:
            (new,) = await client.submit("work", [{"command": ["true"]}])
        found = await waiting
        assert found is not None
        assert found.task_id == new


async def working(api: Api, count: int) -> int:
    """A lease of host-1, taken and ready."""
    await submitted(api, count)
    async with api.client() as client:
        (lease,) = (await client.group("work")).leases
    store = api.app_state.store
    await take_lease(store, lease.manager_id, lease.epoch)
    for event in ("preparing", "prepared"):
        change = EnvironmentChange(event=event, epoch=lease.epoch, fingerprint="f")
        await change_environment(store, lease.manager_id, lease.task_group_id, change)
    return lease.epoch


async def test_a_single_claim_ends_with_the_lease_and_belongs_to_its_manager(
    api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    async with said_hello(api) as (manager, _):
        epoch = await working(api, 3)
        batch = ClaimTasks(epoch=epoch, claim_seq=1, acked_seq=0, max_tasks=2)
        assert len((await manager.claim(batch)).tasks) == 2
        with pytest.raises(Conflict, match="took several tasks"):
            await manager.claim_one(epoch, 1)
        task = await manager.claim_one(epoch, 2)
        assert task is not None
        async with said_hello(api, "host-2") as (other, host_2):
            with pytest.raises(LeaseLost):
                await other.claim_one(epoch, 3)
            foreign = await other.report_one(epoch, ended(task))
            assert foreign.status is ReportStatus.UNKNOWN
            (noted,) = [record for record in caplog.records if record.message == "reports.unknown"]
            assert noted.__dict__["reporter"] == str(host_2.manager_id)
        async with api.client() as client:
            await client.cancel("work")
        with pytest.raises(LeaseLost) as ending:
            await manager.claim_one(epoch, 3)
        assert ending.value.facts["standing"] == "ending"
        assert (await manager.report_one(epoch, ended(task))).status is ReportStatus.COMMITTED
        counts = (await api.call("GET", "//metrics")).text
    for status in ("unknown", "committed"):
        assert f'mitosis_reports_total{{status="{status}"}} 1.0' in counts


async def test_single_calls_are_refused_by_field_and_token(api: Api) -> None:
    async with said_hello(api) as (manager, _):
        with pytest.raises(InvalidRequest) as refused:
            await manager.claim_one(1, 0)
        assert refused.value.facts["field"] == "claim_seq"
        token = manager.token
        for method, path, body, field in (
            ("GET", "/tasks?epoch=1", None, "claim_seq"),
            ("GET", "/tasks?epoch=1&claim_seq=1&max_tasks=2", None, "max_tasks"),
            ("POST", "/tasks", {"task_id": 1, "attempt": 1, "outcome": "failed"}, "epoch"),
            ("POST", "/tasks?epoch=1", {"task_id": 1}, "attempt"),
        ):
            answer = await api.call(method, "/managers" + path, token=token, json=body)
            with problem(answer, 422, "invalid_request") as document:
                assert document["field"] == field
    for method, path in (("GET", "/task-groups"), ("GET", "/tasks"), ("POST", "/tasks")):
        query = "?epoch=1&claim_seq=1" if method == "GET" and path == "/tasks" else "?epoch=1"
        with problem(await api.call(method, "/managers" + path + query), 403, "permission_denied"):
            pass
