"""Control workers and agents of earlier versions beside those of this one: the work goes on (ADR 0018)."""

import asyncio
import re
import shlex
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from signal import SIGKILL, SIGTERM, Signals

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client as TemporalClient
from temporalio.client import WorkflowExecution, WorkflowExecutionStatus

from mitosis.client.client import Client
from mitosis.contracts.http import TaskGroupInfo, TaskGroupSpec
from mitosis.contracts.lifecycle import TaskGroupResult
from mitosis.contracts.temporal_names import task_group_workflow_id
from mitosis.embedded.data_folder import free_port
from mitosis.store.processes.live import own_build
from tests.support.admin import admin_token, admin_token_file
from tests.support.checkout import ROOT
from tests.support.earlier_versions import SCHEMA_0003, UNVERSIONED, installed, running
from tests.support.program import clean_environment, mitosis
from tests.support.waiting import wait_until_async
from tests.support.workflow_tasks import failed_workflow_tasks

CONTROL = {SCHEMA_0003: "worker", UNVERSIONED: "control"}
"""The command of the control worker in each version."""
pytestmark = pytest.mark.timeout(300)
LASTS = timedelta(seconds=90)
GUIDE = ROOT / "docs/upgrading.md"


@dataclass
class Deployment:
    """The parts of a deployment, of any version, on one database and one namespace."""

    place: Path
    settings: dict[str, str]
    client: Client
    temporal: TemporalClient
    groups: list[TaskGroupInfo] = field(default_factory=list)

    @asynccontextmanager
    async def part(
        self, program: Path | None, part: str, name: str, *, by: Signals = SIGTERM
    ) -> AsyncIterator[None]:
        """A part of a version (None: of this one) while the context is open; ended ``by`` a signal."""
        with ExitStack() as stack:
            place = self.place / name
            process = running(program, place, part, by, **self.settings)
            await asyncio.to_thread(stack.enter_context, process)
            yield
            await asyncio.to_thread(stack.close)

    async def begin(self) -> TaskGroupInfo:
        """A new task group of which one task has succeeded."""
        group = await self.client.create_group(TaskGroupSpec(name=f"g{len(self.groups)}"))
        self.groups.append(group)
        await self.works(group)
        return group

    async def works(self, group: TaskGroupInfo) -> None:
        """One more task of the group succeeds."""
        before = (await self.client.group(group.task_group_id)).tasks_succeeded
        await self.client.submit(group.task_group_id, [{"command": ["true"]}])

        async def done() -> bool:
            return (await self.client.group(group.task_group_id)).tasks_succeeded > before

        await wait_until_async(done, timeout=90)

    async def ends(self, group: TaskGroupInfo) -> None:
        """The group is closed by its workflow, and settles."""
        name = task_group_workflow_id(group.task_group_id)
        await self.temporal.get_workflow_handle(name).signal("close")
        ended = await self.client.wait(group.task_group_id, timeout=LASTS)
        assert ended.result is TaskGroupResult.SUCCESS

    async def terminated_by(self, command: Sequence[str], group: TaskGroupInfo) -> None:
        """The command terminates the workflow of the group, which is started again."""
        handle = self.temporal.get_workflow_handle(task_group_workflow_id(group.task_group_id))
        before = (await handle.describe()).run_id
        await self.by_hand(command)

        async def runs() -> bool:
            now = await handle.describe()
            return now.status is WorkflowExecutionStatus.RUNNING and now.run_id != before

        await wait_until_async(runs, timeout=90)

    async def served_by(self, group: TaskGroupInfo) -> str:
        """The build that completed the last workflow task; empty without worker versioning."""
        handle = self.temporal.get_workflow_handle(task_group_workflow_id(group.task_group_id))
        done = [
            event.workflow_task_completed_event_attributes
            async for event in handle.fetch_history_events()
            if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED
        ]
        return done[-1].deployment_version.build_id

    async def by_hand(self, command: Sequence[str]) -> None:
        """Run a command of the guide."""
        env = clean_environment(**self.settings)
        await asyncio.to_thread(mitosis, *command, env=env)

    async def failed_tasks(self) -> list[tuple[str, str]]:
        """All workflow tasks that have failed, of every run in the namespace."""
        return [
            (run.id, message)
            async for run in self.temporal.list_workflows()
            for message in failed_workflow_tasks(await _history(self.temporal, run))
        ]


async def _history(client: TemporalClient, run: WorkflowExecution) -> list[HistoryEvent]:
    handle = client.get_workflow_handle(run.id, run_id=run.run_id)
    return [event async for event in handle.fetch_history_events()]


@pytest.fixture
async def deployment(
    database: str, temporal_server: str, tmp_path: Path
) -> AsyncIterator[Deployment]:
    """With an API of this version."""
    namespace = f"versions-{uuid.uuid4().hex[:8]}"
    port = free_port()
    settings = {
        "MITOSIS_DATABASE_URL": database,
        "MITOSIS_TEMPORAL_ADDRESS": temporal_server,
        "MITOSIS_TEMPORAL__NAMESPACE": namespace,
        "MITOSIS_API__PORT": str(port),
        "MITOSIS_SCHEDULING__IDLE_THRESHOLD_SECONDS": "3",  # one host serves the groups in turn
        "MITOSIS_API_URL": f"http://127.0.0.1:{port}",
        "MITOSIS_API__TOKEN_FILE": str(admin_token_file(tmp_path / "api")),
    }
    async with AsyncExitStack() as stack:
        api = stack.enter_context(ExitStack())
        await asyncio.to_thread(
            api.enter_context, running(None, tmp_path / "api", "api", **settings)
        )
        url, token = settings["MITOSIS_API_URL"], admin_token(tmp_path / "api")
        client = await stack.enter_async_context(Client(url, token))
        temporal = await TemporalClient.connect(temporal_server, namespace=namespace)
        yield Deployment(tmp_path, settings, client, temporal)


async def test_control_workers_of_two_versions_and_an_agent_of_the_version_before(
    deployment: Deployment, tmp_path: Path
) -> None:
    """The new one takes all workflows over, and gives them back when it is stopped."""
    d, before = deployment, installed(UNVERSIONED, tmp_path / "tree")
    async with (
        d.part(before, CONTROL[UNVERSIONED], "old-control"),
        d.part(before, "agent", "old-agent"),
    ):
        first, second = await d.begin(), await d.begin()
        assert await d.served_by(first) == ""
        async with d.part(None, "control", "new-control"):
            await d.works(first)
            await d.ends(first)
            assert await d.served_by(first) == own_build()
            third = await d.begin()
            await d.works(second)
        await d.works(third)
        await d.ends(third)
        assert await d.served_by(third) == "", "the version before goes on alone"
        async with d.part(None, "control", "new-control-again"):
            await d.works(second)
            await d.ends(second)
            assert await d.served_by(second) == own_build()
        assert await d.failed_tasks() == []


async def test_a_control_worker_of_this_version_takes_over_from_one_of_an_early_schema(
    deployment: Deployment, tmp_path: Path
) -> None:
    """The early one keeps running, and has an agent of this version."""
    d, before = deployment, installed(SCHEMA_0003, tmp_path / "tree")
    async with d.part(before, CONTROL[SCHEMA_0003], "old-control"), d.part(None, "agent", "agent"):
        first = await d.begin()
        async with d.part(None, "control", "new-control"):
            await d.works(first)
            second = await d.begin()
            for group in (first, second):
                await d.ends(group)
                assert await d.served_by(group) == own_build()
            assert await d.failed_tasks() == []


def command_of_the_guide(words: str) -> list[str]:
    """The command of upgrading.md that begins with these words after ``mitosis``."""
    (command,) = re.findall(f"`mitosis ({words} [^`]+)`", GUIDE.read_text())
    return shlex.split(command.replace("<the newer build>", own_build()))


async def test_the_version_before_goes_on_after_the_new_one_was_killed_as_the_guide_says(
    deployment: Deployment, tmp_path: Path
) -> None:
    d, before = deployment, installed(UNVERSIONED, tmp_path / "tree")
    async with d.part(None, "agent", "agent"):
        async with d.part(None, "control", "new-control", by=SIGKILL):
            first = await d.begin()
            assert await d.served_by(first) == own_build()
        async with d.part(before, CONTROL[UNVERSIONED], "old-control"):
            await d.by_hand(command_of_the_guide("temporal worker deployment set-current-version"))
            second = await d.begin()
            await d.ends(second)
            assert await d.served_by(second) == ""
            await d.terminated_by(command_of_the_guide("temporal workflow terminate"), first)
            await d.works(first)
            await d.ends(first)
            assert await d.served_by(first) == ""
