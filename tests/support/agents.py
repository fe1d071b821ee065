"""A real agent (zygote, workers, sockets, journal) against the in-memory API, in this event loop."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

from temporalio.testing import ActivityEnvironment

from manager_agent.agent import Agent, AgentConfig
from manager_agent.lease_session import LeaseSession
from mitosis.contracts.control import HookOutcome, HostCommand, LeaseOutcome
from mitosis.execution.run_folder import HostFolders
from tests.support.fake_api import TOKEN, FakeApi
from tests.support.waiting import wait_until_async

T = TypeVar("T")


PATIENCE_SECONDS = 60.0
"""Starting processes takes its time on a machine that is busy with something else."""


async def until(
    condition: Callable[[], object],
    timeout: float = PATIENCE_SECONDS,
    on_timeout: Callable[[], object] | str | None = None,
) -> None:
    await wait_until_async(condition, timeout, on_timeout)


def config(api: FakeApi, folder: Path, **more: Any) -> AgentConfig:
    """Of an agent whose Temporal is away: commands are given by :class:`Commands`."""
    values: dict[str, Any] = {
        "api_url": api.url,
        "manager_id": api.manager_id,
        "token": TOKEN,
        "temporal_address": "127.0.0.1:1",
        "state_dir": folder / "state",
        "run_parent": folder,
        "renew_seconds": 0.2,
        "drain": timedelta(seconds=20),
    }
    return AgentConfig(**(values | more))


class Commands:
    """Host activities, run as Temporal would run them."""

    def __init__(self, agent: Agent, api: FakeApi) -> None:
        self.agent = agent
        self.api = api
        self.stopped = False

    @property
    def session(self) -> LeaseSession:
        session = self.agent.host.session
        assert session is not None
        return session

    def command(self, **other: Any) -> HostCommand:
        values: dict[str, Any] = {
            "manager_id": self.api.manager_id,
            "task_group_id": self.api.task_group_id,
            "epoch": self.api.epoch,
        }
        return HostCommand(**(values | other))

    async def prepare(self, **other: Any) -> HookOutcome:
        return await self._run(self.agent.host.prepare_environment, self.command(**other))

    async def run_lease(self, **other: Any) -> LeaseOutcome:
        return await self._run(self.agent.host.run_lease, self.command(**other))

    async def clean(self, **other: Any) -> HookOutcome:
        return await self._run(
            self.agent.host.clean_environment, self.command(**({"epoch": None} | other))
        )

    def stop(self) -> None:
        """SIGTERM; a second time: SIGTERM again."""
        self.stopped = True
        self.agent.stop()

    def start_lease(self) -> None:
        """Watch the lease in the background; ``await self.lease`` is its outcome."""
        self.lease = asyncio.get_running_loop().create_task(self.run_lease())

    async def done(self, *task_ids: int, timeout: float = PATIENCE_SECONDS) -> None:
        """Until these tasks have a result; without ids, until nothing is open."""
        await until(
            lambda: (
                all(i in self.api.results for i in task_ids) and (task_ids or not self.api.open)
            ),
            timeout,
            lambda: f"open {self.api.open}, results {self.api.results}",
        )

    async def _run(
        self, activity: Callable[[HostCommand], Coroutine[Any, Any, T]], command: HostCommand
    ) -> T:
        return await ActivityEnvironment().run(activity, command)


@asynccontextmanager
async def running_agent(api: FakeApi, folder: Path, **more: Any) -> AsyncIterator[Commands]:
    """Said hello, and stopped in order at the end."""
    settings = config(api, folder, **more)
    with HostFolders.lock(str(api.manager_id), settings.state_dir, folder) as folders:
        agent = Agent(settings, folders)
        before = len(api.hellos)
        running = asyncio.get_running_loop().create_task(agent.run())
        await until(
            lambda: (
                (len(api.hellos) > before and agent._contact.incarnation == api.incarnation)
                or running.done()
            )
        )
        host = Commands(agent, api)
        try:
            yield host
        finally:
            if not host.stopped:
                agent.stop()
            await running
