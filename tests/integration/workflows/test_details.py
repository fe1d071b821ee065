"""Temporal's details of a task group and a host that wait for each other, over the real servers."""

from collections.abc import AsyncIterator, Sequence
from uuid import UUID

import pytest
from temporalio.api.sdk.v1 import WorkflowMetadata
from temporalio.service import RPCError, RPCStatusCode

from mitosis.contracts.control import WaitingWork
from mitosis.contracts.temporal_names import manager_workflow_id, task_group_workflow_id
from mitosis.retry_policy import RetryPolicy
from mitosis.store.control.control_store import ControlStore
from mitosis.store.groups.assignment import refresh_managers
from mitosis.store.groups.explain import explain_group
from mitosis.store.managers.explain import explain_manager
from mitosis.store.managers.tags import set_tags
from tests.support.campaigns import Host, World, world
from tests.support.control_plane import ControlPlane, control_plane
from tests.support.waiting import wait_until_async
from workflows import situation_signals

LACKS = "lacks gpu; the task group needs all of gpu"


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Sequence[WaitingWork]:
    """What the looks of the control worker have found."""
    found: list[WaitingWork] = []

    async def recorded(store: ControlStore) -> WaitingWork:
        found.append(await real(store))
        return found[-1]

    real = ControlStore.look
    monkeypatch.setattr(ControlStore, "look", recorded)
    return found


@pytest.fixture
async def plane(
    database: str, temporal_server: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[ControlPlane]:
    pauses = RetryPolicy(first_seconds=0.2, longest_seconds=0.5, jitter=0.0)
    monkeypatch.setattr(situation_signals, "PAUSES", pauses)
    async with control_plane(database, temporal_server) as one:
        await one.start(look_every_seconds=0.2)
        yield one


@pytest.fixture
async def w(database: str, plane: ControlPlane) -> AsyncIterator[World]:
    async with world(database) as one:
        yield one


async def details(plane: ControlPlane, workflow: str) -> Sequence[str]:
    handle = (await plane.client()).get_workflow_handle(workflow)
    try:
        asked: WorkflowMetadata = await handle.query(
            "__temporal_workflow_metadata", result_type=WorkflowMetadata
        )
    except RPCError as error:  # it is not started yet
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
        return ()
    return asked.current_details.splitlines()


async def in_contact(w: World) -> None:
    """Let the hosts speak: no agent does it here."""
    await w.rows("UPDATE manager_live SET last_contact_at = now() RETURNING manager_id")


async def waiting(w: World, plane: ControlPlane) -> tuple[Host, UUID]:
    """A host and a task group that it may not serve; both say so."""
    host = await w.host(tags=["x86"])
    group = await w.group("tagged", tags={"gpu"})
    await w.submit(group)
    name = (await explain_manager(w.store, host.manager_id)).manager_name

    async def shown() -> bool:
        await in_contact(w)
        ours = await details(plane, task_group_workflow_id(group))
        theirs = await details(plane, manager_workflow_id(host.manager_id))
        return f"    * {name}: {LACKS}" in ours and f"    * tagged: {LACKS}" in theirs

    await wait_until_async(shown, timeout=30)
    return host, group


async def test_details_have_the_lines_of_explain_until_the_smallest_change_is_made(
    w: World, plane: ControlPlane
) -> None:
    host, group = await waiting(w, plane)
    of_host = await explain_manager(w.store, host.manager_id)
    of_group = await explain_group(w.store, group)
    change = f"    * the smallest change: {of_group.change}"
    assert of_group.change == of_host.change
    assert of_group.change == f"tag gpu on {of_host.manager_name} and refresh the hosts of tagged"
    ours = await details(plane, task_group_workflow_id(group))
    theirs = await details(plane, manager_workflow_id(host.manager_id))
    assert [*ours[-2:]] == [f"    * {of_group.hosts[0].manager_name}: {LACKS}", change]
    assert [*theirs[-2:]] == [f"    * tagged: {of_host.groups[0].chain}", change]
    number = await w.value("SELECT id FROM managers WHERE uuid = %s", host.manager_id)
    async with w.database.transaction() as connection:
        await set_tags(connection, number, ["gpu"])
    await refresh_managers(w.store, group)

    async def offered() -> bool:
        await in_contact(w)
        lines = await details(plane, manager_workflow_id(host.manager_id))
        return any("of tagged: offered" in line for line in lines) and change not in lines

    await wait_until_async(offered, timeout=30)


async def test_a_host_that_no_task_group_waits_for_any_more_does_not_say_so(
    w: World, looks: Sequence[WaitingWork], plane: ControlPlane
) -> None:
    host, group = await waiting(w, plane)
    await wait_until_async(lambda: any(host.manager_id in found.idle_hosts for found in looks))
    await w.cancel(group)

    async def says_nothing() -> bool:
        await in_contact(w)
        lines = await details(plane, manager_workflow_id(host.manager_id))
        return not any(LACKS in line or "not used" in line for line in lines)

    await wait_until_async(says_nothing, timeout=30)
