"""The real ``temporal`` program on our workflows, as a Temporal user would use it."""

from collections.abc import AsyncIterator
from uuid import UUID

import pytest

from mitosis.contracts.lifecycle import TaskGroupResult, TaskGroupState
from mitosis.contracts.temporal_names import task_group_workflow_id
from tests.support.control_plane import ControlPlane, control_plane
from tests.support.waiting import wait_until_async

INPUTS: dict[str, tuple[str, ...]] = {
    "no input": (),
    "null": ("--input", "null"),
    "empty object": ("--input", "{}"),
    "object": ("--input", '{"reason": "by hand"}'),
}


@pytest.fixture
async def plane(database: str, temporal_server: str) -> AsyncIterator[ControlPlane]:
    async with control_plane(database, temporal_server) as one:
        await one.start()
        yield one


async def group_in_temporal(plane: ControlPlane, **spec: object) -> UUID:
    """A new group whose workflow, started by the outbox, is there."""
    group = await plane.stores.create_group(**spec)

    async def shown() -> bool:
        answer = await plane.cli("workflow", "describe", "-w", task_group_workflow_id(group))
        return answer.status == 0

    await wait_until_async(shown)
    return group


async def signal(plane: ControlPlane, group: UUID, name: str, *arguments: str) -> None:
    workflow = task_group_workflow_id(group)
    answer = await plane.cli("workflow", "signal", "--name", name, "-w", workflow, *arguments)
    assert answer.status == 0, answer.err


async def becomes(plane: ControlPlane, group: UUID, state: TaskGroupState) -> None:
    async def so() -> bool:
        return (await plane.stores.observe(group)).state is state

    await wait_until_async(so)


@pytest.mark.spec("S002-103", "S002-118")
async def test_close_and_reopen_by_signal_with_and_without_input(plane: ControlPlane) -> None:
    group = await group_in_temporal(plane)
    await plane.stores.submit_one(group)
    for arguments in INPUTS.values():
        await signal(plane, group, "close", *arguments)
        await becomes(plane, group, TaskGroupState.CLOSED)
        await signal(plane, group, "reopen", *arguments)
        await becomes(plane, group, TaskGroupState.OPEN)


@pytest.mark.parametrize("verb", ["complete", "cancel"])
async def test_endings_by_signal_with_and_without_input(plane: ControlPlane, verb: str) -> None:
    end = TaskGroupState.COMPLETE if verb == "complete" else TaskGroupState.CANCELLED
    for arguments in INPUTS.values():
        group = await group_in_temporal(plane)
        await signal(plane, group, verb, *arguments)
        await becomes(plane, group, end)


async def test_update_answers_the_group_or_names_the_error(plane: ControlPlane) -> None:
    group = await group_in_temporal(plane, name="by-update")
    workflow = task_group_workflow_id(group)
    update = ("workflow", "update", "execute", "-w", workflow, "-o", "json", "--name")
    await plane.stores.submit_one(group)
    for arguments in INPUTS.values():
        answer = (await plane.cli(*update, "close", *arguments)).json()
        assert answer["result"]["state"] == "closed"
        assert answer["result"]["name"] == "by-update"
        answer = (await plane.cli(*update, "reopen", *arguments)).json()
        assert answer["result"]["state"] == "open"
    answer = (await plane.cli(*update, "cancel", "--input", '{"grace_seconds": 1}')).json()
    assert answer["result"]["state"] == "cancelled"
    refused = await plane.cli(*update, "reopen")
    assert refused.status == 1
    # Nothing holds this group up: it may have settled, and its workflow ended, in between.
    ended = ("already completed", "aborted by closing workflow")
    assert any(words in refused.err for words in ("invalid_transition", *ended)), refused.err


async def test_nonsense_neither_stops_a_workflow_nor_changes_a_group(plane: ControlPlane) -> None:
    group = await group_in_temporal(plane)
    workflow = task_group_workflow_id(group)
    await signal(plane, group, "close", "--input", '"nope"')
    await signal(plane, group, "close", "--input", '{"reason": 3}')
    await signal(plane, group, "close", "--input", "{}", "--input", "{}")
    await signal(plane, group, "cancel", "--input", '{"grace_seconds": -1}')
    await signal(plane, group, "cancel", "--input", '{"grace_seconds": "3"}')
    await signal(plane, group, "cancel", "--input", '{"cancel_running_tasks": 1}')
    await signal(plane, group, "poke", "--input", "{}", "--input", "{}")
    await signal(plane, group, "no-such-signal")
    update = ("workflow", "update", "execute", "-w", workflow, "--name", "close")
    for arguments in (("--input", '"nope"'), ("--input", "{}", "--input", "{}")):
        assert (await plane.cli(*update, *arguments)).status == 1
    assert (await plane.stores.observe(group)).state is TaskGroupState.OPEN
    await signal(plane, group, "close")
    await becomes(plane, group, TaskGroupState.COMPLETE)


async def test_workflows_can_be_found_and_read(plane: ControlPlane) -> None:
    group = await group_in_temporal(plane, name="readable", tags=["gpu"], priority=7)
    workflow = task_group_workflow_id(group)
    query = (
        "MitosisState='open' AND MitosisTags='gpu' AND MitosisPriority=7 AND MitosisGroup='admin'"
        " AND MitosisTaskGroup='readable'"
    )

    async def listed() -> bool:
        found = (await plane.cli("workflow", "list", "--query", query, "-o", "json")).json()
        return [one["execution"]["workflowId"] for one in found] == [workflow]

    await wait_until_async(listed)
    (found,) = [one async for one in (await plane.client()).list_workflows(query)]
    assert await found.memo() == {"task_group": "readable", "user_group": "admin"}
    described = await plane.cli("workflow", "describe", "-w", workflow)
    assert "Task group admin/readable" in described.out
    metadata = await plane.cli("workflow", "metadata", "-w", workflow)
    assert "**admin/readable** is **open**" in metadata.out
    for name in ("close", "reopen", "cancel", "complete"):
        assert metadata.out.count(f"    {name} ") == 2, metadata.out  # as signal and as update


async def test_result_of_a_settled_group(plane: ControlPlane) -> None:
    group = await group_in_temporal(plane)
    await signal(plane, group, "close")
    result = await plane.cli(
        "workflow", "result", "-w", task_group_workflow_id(group), "-o", "json"
    )
    assert result.json()["result"]["result"] == TaskGroupResult.SUCCESS


async def test_temporal_cancel_is_the_cancel_verb(plane: ControlPlane) -> None:
    group = await group_in_temporal(plane)
    await plane.stores.submit_one(group)
    workflow = task_group_workflow_id(group)
    assert (await plane.cli("workflow", "cancel", "-w", workflow)).status == 0
    await becomes(plane, group, TaskGroupState.CANCELLED)
    result = await plane.cli("workflow", "result", "-w", workflow, "-o", "json")
    assert result.json()["result"]["cancelled"] == 1
    assert (await plane.stores.observe(group)).settled


async def test_terminated_workflow_is_started_again(plane: ControlPlane) -> None:
    """PostgreSQL alone says that it must run."""
    group = await group_in_temporal(plane)
    workflow = task_group_workflow_id(group)
    assert (await plane.cli("workflow", "terminate", "-w", workflow)).status == 0
    await plane.stop()
    await plane.start(bootstrap_every_seconds=0.5)

    async def running() -> bool:
        described = await plane.cli("workflow", "describe", "-w", workflow, "-o", "json")
        status: str = described.json()["workflowExecutionInfo"]["status"]
        return status.endswith("RUNNING")

    await wait_until_async(running, timeout=20)
