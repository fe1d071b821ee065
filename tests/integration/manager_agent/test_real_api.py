"""The agent against the real API and PostgreSQL; what Temporal would command is called by hand."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from temporalio.testing import ActivityEnvironment

from api.service import ApiOptions, RunningApi, admin_token, running_api
from manager_agent.agent import Agent, AgentConfig
from manager_agent.registration import read_credentials
from mitosis.client.client import Client
from mitosis.contracts.allocation import WorkerAllocationPlan
from mitosis.contracts.control import (
    Cancel,
    Close,
    HookVerdict,
    HostCommand,
    LeaseEnd,
    ManagerView,
    VerbRequest,
)
from mitosis.contracts.errors import PermissionDenied, Unauthenticated
from mitosis.contracts.hook import HookSpec
from mitosis.contracts.http import RegisterManager, TaskGroupInfo, TaskGroupSpec
from mitosis.contracts.lifecycle import EnvironmentState, TaskGroupResult
from mitosis.contracts.task import RetryPolicy, TaskSubmission
from mitosis.embedded.data_folder import ed25519_private_key
from mitosis.execution.run_folder import HostFolders
from mitosis.store.control.control_store import ControlStore
from mitosis.store.leases.scheduler import assign_round
from mitosis.store.managers.views import observe_manager
from mitosis.store.store import StoreOptions
from tests.support.agents import until
from tests.support.fake_api import command
from tests.support.http_api import NAMESPACE, NoTemporal


@dataclass
class Site:
    """A served API over a database, one host with an agent, and the admin's client."""

    api: RunningApi
    client: Client
    agent: Agent
    manager_id: UUID

    async def group(self, *tasks: TaskSubmission, **spec: Any) -> UUID:
        plan = WorkerAllocationPlan(worker_count=2)
        info = await self.client.create_group(
            TaskGroupSpec.model_validate(
                {"name": "campaign", "worker_allocation_plan": plan} | spec
            )
        )
        await self.client.submit(info.task_group_id, list(tasks))
        await assign_round(self.api.app_state.store)
        return info.task_group_id

    async def view(self) -> ManagerView:
        return await observe_manager(self.api.app_state.store, self.manager_id)

    async def command(self, activity: Any, group: UUID, epoch: int | None) -> Any:
        command = HostCommand(manager_id=self.manager_id, task_group_id=group, epoch=epoch)
        return await ActivityEnvironment().run(activity, command)

    async def start(self, group: UUID) -> "asyncio.Task[Any]":
        """What ManagerWorkflow does with an offer."""
        lease = (await self.view()).lease
        assert lease is not None
        outcome = await self.command(self.agent.host.prepare_environment, group, lease.epoch)
        assert outcome.verdict is HookVerdict.READY
        return asyncio.create_task(self.command(self.agent.host.run_lease, group, lease.epoch))

    async def finished(self, group: UUID, count: int) -> TaskGroupInfo:
        async def completed() -> bool:
            return (await self.client.group(group)).tasks_completed >= count

        await until(completed)
        return await self.client.group(group)

    async def released(self) -> None:
        """Without Temporal, renewals alone end the lease and order the teardown (P8)."""

        async def cleaned() -> bool:
            view = await self.view()
            return view.lease is None and not view.environments

        await until(cleaned)


def options(database: str, key: bytes, port: int = 0) -> ApiOptions:
    return ApiOptions(
        store=StoreOptions(database_url=database),
        signing_key=key,
        temporal_namespace=NAMESPACE,
        port=port,
    )


@asynccontextmanager
async def site(
    api: RunningApi, folder: Path, token_lifetime: timedelta = timedelta(days=30)
) -> AsyncIterator[Site]:
    token = (await admin_token(api.app_state)).token
    async with Client(api.url, token) as client:
        manager = await client.register_manager(
            RegisterManager(name="host", lifetime=token_lifetime)
        )
        config = AgentConfig(
            api_url=api.url,
            manager_id=manager.manager_id,
            token=manager.token,
            temporal_address="127.0.0.1:1",
            state_dir=folder / "state",
            run_parent=folder,
            renew_seconds=0.2,
        )
        with HostFolders.lock(str(manager.manager_id), config.state_dir, folder) as folders:
            agent = Agent(config, folders)
            running = asyncio.create_task(agent.run())
            it = Site(api, client, agent, manager.manager_id)

            async def online() -> bool:
                return (await it.view()).online

            await until(online)
            try:
                yield it
            finally:
                agent.stop()
                await running


@pytest.mark.spec(
    "S002-106", "S002-125", "S002-14", "S002-18", "S002-37", "S002-38", "S002-53", "S002-58"
)
async def test_a_campaign_from_offer_to_settlement(database: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    key = ed25519_private_key()
    hooks = {
        "environment_setup_hook": HookSpec(command=("/bin/sh", "-c", f"echo setup >> {log}")),
        "environment_teardown_hook": HookSpec(command=("/bin/sh", "-c", f"echo teardown >> {log}")),
    }
    async with running_api(options(database, key), NoTemporal()) as api, site(api, tmp_path) as it:
        tasks = [command("/bin/sh", "-c", f"echo {n} >> {log}") for n in range(100)]
        group = await it.group(*tasks, **hooks)
        watch = await it.start(group)
        info = await it.finished(group, 100)
        assert info.tasks_succeeded == 100
        groups = ControlStore(api.app_state.store)
        await groups.apply(VerbRequest(task_group_id=group, verb=Close()))
        await groups.finalize(group)
        assert (await watch).end is LeaseEnd.ENDING
        await it.released()
        cleaned = await it.command(it.agent.host.clean_environment, group, None)
        assert cleaned.verdict is HookVerdict.CLEANED
        view = await groups.settle(group)
        assert view.settled
        assert view.result is TaskGroupResult.SUCCESS
        lines = log.read_text().split()
        assert (lines[0], lines[-1]) == ("setup", "teardown")
        assert sorted(map(int, lines[1:-1])) == list(range(100))


async def test_failures_are_retried_by_policy_and_crashes_by_the_signal_table(
    database: str, tmp_path: Path
) -> None:
    key = ed25519_private_key()
    async with running_api(options(database, key), NoTemporal()) as api, site(api, tmp_path) as it:
        group = await it.group(
            command("/bin/sh", "-c", "exit 3", retry=RetryPolicy(max_attempts=2)),
            command("/bin/sh", "-c", "kill -9 $PPID; sleep 60"),
            command("/bin/true"),
        )
        watch = await it.start(group)
        info = await it.finished(group, 3)
        assert (info.tasks_failed, info.tasks_succeeded) == (2, 1)
        by_kind = {task.kind: task async for task in it.client.tasks(group)}
        assert len((await it.client.task(by_kind["exit_code"].task_uuid)).failures) >= 1
        crashed = await it.client.task(by_kind["worker_lost"].task_uuid)
        assert crashed.signal == 9
        assert len(crashed.failures) == 3
        it.agent.stop()
        await watch


@pytest.mark.spec("S000-97", "S000-100")
async def test_an_api_that_restarts_costs_no_attempt(database: str, tmp_path: Path) -> None:
    key, go, log = ed25519_private_key(), tmp_path / "go", tmp_path / "log"
    script = f"echo run >> {log}; until [ -e {go} ]; do sleep 0.1; done"
    async with running_api(options(database, key), NoTemporal()) as first:
        port = int(first.url.rpartition(":")[2])
        exits = site(first, tmp_path)
        it = await exits.__aenter__()
        group = await it.group(*[command("/bin/sh", "-c", script)] * 2)
        watch = await it.start(group)
        await until(lambda: log.exists() and len(log.read_text().split()) == 2)
    go.touch()
    await until(lambda: it.agent.host.session and not it.agent.host.session.state.running)
    async with running_api(options(database, key, port), NoTemporal()) as second:
        it.api = second
        info = await it.finished(group, 2)
        assert info.tasks_succeeded == 2
        assert log.read_text().split() == ["run", "run"]
        await exits.__aexit__(None, None, None)
        assert (await watch).end is LeaseEnd.STOPPING


async def test_a_cancelled_group_kills_what_runs(database: str, tmp_path: Path) -> None:
    key = ed25519_private_key()
    async with running_api(options(database, key), NoTemporal()) as api, site(api, tmp_path) as it:
        group = await it.group(*[command("/bin/sleep", "60")] * 5, cancel_grace_seconds=2)
        watch = await it.start(group)

        def both_run() -> bool:
            session = it.agent.host.session
            return session is not None and session.state.running == 2

        await until(both_run)
        await ControlStore(api.app_state.store).apply(
            VerbRequest(task_group_id=group, verb=Cancel())
        )
        assert (await watch).end is LeaseEnd.ENDING

        async def all_cancelled() -> bool:
            """As the workflow of the group does it, again after each return of tasks."""
            await ControlStore(api.app_state.store).discard(group)
            return (await it.client.group(group)).tasks_cancelled == 5

        await until(all_cancelled)
        await it.released()
        assert (
            await it.command(it.agent.host.clean_environment, group, None)
        ).verdict is HookVerdict.CLEANED
        assert (
            await ControlStore(api.app_state.store).settle(group)
        ).result is TaskGroupResult.CANCELLED


async def test_goodbye_gives_the_lease_back(database: str, tmp_path: Path) -> None:
    key = ed25519_private_key()
    async with running_api(options(database, key), NoTemporal()) as api:
        async with site(api, tmp_path) as it:
            group = await it.group(command("/bin/sleep", "60"))
            watch = await it.start(group)
            await until(lambda: it.agent.host.session is not None)
            it.agent.stop()
        assert (await watch).end is LeaseEnd.STOPPING
        view = await it.view()
        assert view.lease is None
        assert not view.online
        assert [e.state for e in view.environments] == [EnvironmentState.READY]


@pytest.mark.spec("S002-46", "S002-51", "S002-96", "S002-133")
async def test_nobody_but_their_agent_knows_the_workers(database: str, tmp_path: Path) -> None:
    """They have a number on their host: no identity, no token, no row."""
    key = ed25519_private_key()
    async with running_api(options(database, key), NoTemporal()) as api, site(api, tmp_path) as it:
        group = await it.group(*[command("/usr/bin/env")] * 4)
        watch = await it.start(group)
        await it.finished(group, 4)
        token = it.agent._config.token
        for task in [task async for task in it.client.tasks(group)]:
            assert task.detail is not None
            assert task.detail["worker"] in (0, 1)
            assert token not in str(task.detail["stdout"])
            assert "eyJ" not in str(task.detail["stdout"]), "how every JWT begins"
        (manager,) = [manager async for manager in it.client.managers()]
        assert manager.manager_id == it.manager_id
        async with api.app_state.store.database.connection() as connection:
            named = "SELECT count(*) AS n FROM worker_services, worker_registrations"
            assert await (await connection.execute(named)).fetchone() == {"n": 0}
            kinds = await connection.execute("SELECT kind, worker_uuid FROM leases")
            assert await kinds.fetchall() == [{"kind": "manager", "worker_uuid": None}]
        it.agent.stop()
        await watch


@pytest.mark.spec("S000-156")
async def test_work_goes_on_while_tokens_expire(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.auth.LEEWAY", timedelta(0))
    monkeypatch.setattr("api.held_calls.LEEWAY", timedelta(0))
    go = tmp_path / "go"
    serving = running_api(options(database, ed25519_private_key()), NoTemporal())
    async with serving as api, site(api, tmp_path, timedelta(seconds=3)) as it:
        first = it.agent._config.token
        group = await it.group(command("/bin/sh", "-c", f"until [ -e {go} ]; do sleep 0.02; done"))
        watch = await it.start(group)

        async def expired() -> bool:
            async with Client(api.url, first) as client:
                try:
                    await client.me()
                except Unauthenticated:
                    return True
                except PermissionDenied:
                    return False  # the token of a host is valid, and no user's
            return False

        await until(expired)
        go.touch()
        assert (await it.finished(group, 1)).tasks_succeeded == 1
        (task,) = [task async for task in it.client.tasks(group)]
        assert task.attempt == 1
        assert (await it.view()).online
        it.agent.stop()
        assert (await watch).end is LeaseEnd.STOPPING
        kept = read_credentials(tmp_path / "state")
        assert kept is not None
        assert kept.token != first
