"""Hosts that fail for one task group: broken ones, one that cannot reach Temporal, one whose setup fails."""

from datetime import timedelta
from pathlib import Path
from unittest.mock import patch
from uuid import UUID

import pytest

from mitosis.contracts.hook import HookSpec
from mitosis.contracts.task import TaskSubmission
from mitosis.store.leases.scheduler import assign_round
from tests.support.fleet import Fleet, diary, it, shared_fleet
from workflows import options

__all__ = ["diary", "it", "shared_fleet"]
pytestmark = pytest.mark.asyncio(loop_scope="module")
HOST_LOST_AFTER = timedelta(seconds=30)
"""While the other host is lost, a host is alone, and the failures of its tasks are final."""


def fails_on(broken: UUID) -> TaskSubmission:
    script = f'[ "$MITOSIS_MANAGER_ID" != {broken} ] || exit 42; sleep 0.02'
    return TaskSubmission(command=["/bin/sh", "-c", script])


@pytest.mark.spec("C-33")
async def test_a_broken_host_costs_no_task(it: Fleet, caplog: pytest.LogCaptureFixture) -> None:
    broken, _ = await it.host(), await it.host()
    group = await it.group(*[fails_on(broken.manager_id)] * 40)
    info = await it.settled(group)
    assert (info.tasks_succeeded, info.tasks_failed) == (40, 0)
    judged = [vars(one)["phase"] for one in caplog.records if one.message == "host.judged"]
    assert judged == ["suspected", "quarantined"]


@pytest.mark.spec("C-33")
async def test_a_broken_host_stays_quarantined_while_the_good_one_starts_again(it: Fleet) -> None:
    broken, good = await it.host(), await it.host()
    group = await it.group(*[fails_on(broken.manager_id)] * 120)

    async def is_free() -> bool:
        failures = (await it.client.manager(broken.manager_id)).failures
        return bool(failures) and (await broken.view()).lease is None

    await it.until(is_free)
    assert await good.stop() == 0
    await assign_round(it.api.app_state.store)
    assert await is_free(), "it is not offered to the group again"
    await good.start()
    info = await it.settled(group)
    assert (info.tasks_succeeded, info.tasks_failed) == (120, 0)


async def test_a_host_without_temporal_is_passed_over_for_one_that_has_it(it: Fleet) -> None:
    with patch.object(options, "HOST_TAKES_WITHIN", timedelta(seconds=1)):
        deaf = await it.host(start=False)
        deaf.temporal_address = "127.0.0.1:1"
        await deaf.start()
        group = await it.group(TaskSubmission(command=["true"]))
        await it.until(lambda: deaf.said("temporal.unreachable") > 0)
        await it.host()
        info = await it.settled(group)
    assert info.tasks_succeeded == 1
    (failure,) = await it.rows("SELECT kind FROM host_failures")
    assert failure["kind"] == "unreachable"


@pytest.mark.spec("C-30")
async def test_a_repaired_setup_is_repeated_by_the_verb(it: Fleet, tmp_path: Path) -> None:
    host = await it.host()
    repaired = tmp_path / "repaired"
    hook = HookSpec(command=("test", "-e", str(repaired)))
    group = await it.group(TaskSubmission(command=["true"]), environment_setup_hook=hook)

    async def setup_failed() -> bool:
        why = await it.client.explain(group)
        return why.code == "setup_failed" and "retry-setup" in why.line

    await it.until(setup_failed)
    repaired.touch()
    assert len(await it.client.retry_setup(host.manager_id, group)) == 1
    assert (await it.settled(group)).tasks_succeeded == 1
