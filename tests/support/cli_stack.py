"""An API on loopback for tests of the command line, and by hand what host and control plane would do."""

import asyncio
import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import pytest

from api.app_state import AppState
from api.service import ApiOptions, admin_token, running_api
from mitosis.cli.connection import StackConnection, write_connection
from mitosis.client.client import Client
from mitosis.contracts.agent_http import EnvironmentChange
from mitosis.contracts.control import ReleaseReason, ReleaseRequest
from mitosis.contracts.http import RegisterManager
from mitosis.contracts.wire import ClaimTasks, Outcome, ReportTasks, TaskReport
from mitosis.embedded.data_folder import ed25519_private_key
from mitosis.store.control.control_store import ControlStore
from mitosis.store.leases.scheduler import assign_round
from mitosis.store.managers.release import release_lease
from mitosis.store.managers.views import observe_manager
from mitosis.store.store import StoreOptions
from tests.support.http_api import NAMESPACE, NoTemporal, hello
from tests.support.manager_api import ManagerApi
from tests.support.servers import LoopThread

COMMAND = [sys.executable, "-c", "from mitosis.cli import main; main()"]


@dataclass(frozen=True, slots=True)
class CliStack:
    """A served API whose addresses are in a data folder, as `mitosis up` leaves them."""

    app_state: AppState
    url: str
    token: str
    data_dir: Path
    loop: LoopThread

    @property
    def socket(self) -> Path:
        """Where this user needs no token."""
        return self.data_dir / "api.sock"

    def write_connection(self) -> None:
        """Say in the data folder where this API is, as `mitosis up` does."""
        self.data_dir.mkdir(mode=0o700, exist_ok=True)
        connection = StackConnection(
            api_url=self.url,
            api_socket=self.socket,
            temporal_address="127.0.0.1:1",
            temporal_namespace=NAMESPACE,
            pid=os.getpid(),
        )
        write_connection(self.data_dir, connection)

    def environment(self) -> dict[str, str]:
        """For a process that is to use this stack."""
        kept = {key: value for key, value in os.environ.items() if not key.startswith("MITOSIS_")}
        return {**kept, "MITOSIS_DATA_DIR": str(self.data_dir)}

    def use(self, patch: pytest.MonkeyPatch) -> None:
        """Have commands of this process use this stack, with no settings of their own."""
        for name in [name for name in os.environ if name.startswith("MITOSIS_")]:
            patch.delenv(name)
        for name in ("MITOSIS_DATA_DIR", "XDG_CONFIG_HOME", "XDG_STATE_HOME"):
            patch.setenv(name, str(self.data_dir))

    def run_tasks(self, outcomes: Sequence[Outcome], host: str = "host-1") -> None:
        """Have a new host claim and report that many tasks of the one group that has work."""
        self.loop.run(_run_tasks(self, outcomes, host))

    def end(self, task_group_id: UUID) -> None:
        """What the group's workflow does at the end of a closed or cancelled group."""
        self.loop.run(_end(self.app_state, task_group_id))


@contextmanager
def cli_stack(
    loop: LoopThread,
    database: str,
    data_dir: Path,
    *,
    port: int = 0,
    signing_key: bytes | None = None,
) -> Iterator[CliStack]:
    """Serve the API over ``database`` while the context is open; Temporal does not run."""
    options = ApiOptions(
        store=StoreOptions(database_url=database),
        signing_key=signing_key or ed25519_private_key(),
        temporal_namespace=NAMESPACE,
        port=port,
        owner_socket=data_dir / "api.sock",
    )
    data_dir.mkdir(mode=0o700, exist_ok=True)
    ready: Future[tuple[AppState, str, str]] = Future()
    stop = asyncio.Event()
    serving = loop.spawn(_serve(options, ready, stop))
    try:
        state, url, token = ready.result(30)
        stack = CliStack(state, url, token, data_dir, loop)
        stack.write_connection()
        yield stack
    finally:
        loop.call(stop.set)
        serving.result(30)


async def _serve(
    options: ApiOptions, ready: "Future[tuple[AppState, str, str]]", stop: asyncio.Event
) -> None:
    try:
        async with running_api(options, NoTemporal()) as api:
            token = await admin_token(api.app_state)
            ready.set_result((api.app_state, api.url, token.token))
            await stop.wait()
    except BaseException as error:
        if not ready.done():
            ready.set_exception(error)
        raise


async def _run_tasks(stack: CliStack, outcomes: Sequence[Outcome], host: str) -> None:
    async with Client(stack.url, stack.token) as client:
        registered = await client.register_manager(RegisterManager(name=host))
    async with ManagerApi(stack.url, registered.token) as manager:
        await manager.hello(hello())
        await assign_round(stack.app_state.store)
        lease = (await observe_manager(stack.app_state.store, registered.manager_id)).lease
        assert lease is not None, "the scheduler offered nothing"
        epoch, group = lease.epoch, lease.task_group_id
        await manager.take(epoch)
        for event in ("preparing", "prepared"):
            await manager.change_environment(
                group, EnvironmentChange(event=event, epoch=epoch, fingerprint="f")
            )
        claim = ClaimTasks(epoch=epoch, claim_seq=1, acked_seq=0, max_tasks=len(outcomes))
        tasks = (await manager.claim(claim)).tasks
        await manager.report_tasks(
            ReportTasks(
                epoch=epoch,
                reports=[
                    TaskReport(
                        task_id=task.task_id,
                        attempt=task.attempt,
                        outcome=outcome,
                        kind=None if outcome is Outcome.SUCCEEDED else "exit_code",
                        exit_code=0 if outcome is Outcome.SUCCEEDED else 3,
                        started_at=1.0,
                        finished_at=2.5,
                    )
                    for task, outcome in zip(tasks, outcomes, strict=True)
                ],
            )
        )
        release = ReleaseRequest(
            manager_id=registered.manager_id, epoch=epoch, reason=ReleaseReason.MOVED
        )
        await release_lease(stack.app_state.store, release)
        await manager.change_environment(group, EnvironmentChange(event="tear_down"))
        await manager.change_environment(group, EnvironmentChange(event="cleaned"))


async def _end(state: AppState, task_group_id: UUID) -> None:
    while (await ControlStore(state.store).discard(task_group_id)).remaining:
        pass
    await ControlStore(state.store).finalize(task_group_id)
    await ControlStore(state.store).settle(task_group_id)
