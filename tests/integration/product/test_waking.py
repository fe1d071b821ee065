"""Claimable work beside a free host begins soon, whatever was lost on the way (protocol P7).

Real API, PostgreSQL, Temporal and agents.
"""

import pytest

from mitosis.contracts.lifecycle import TaskGroupResult
from mitosis.contracts.task import TaskSubmission
from tests.support.fleet import Diary, Fleet, diary, it, shared_fleet

__all__ = ["diary", "it", "shared_fleet"]
pytestmark = pytest.mark.asyncio(loop_scope="module")

SHORT = TaskSubmission(handler="time:sleep", arguments=[0.001])


@pytest.mark.spec("S000-33")
async def test_short_tasks_do_not_wait_behind_a_long_one_while_another_host_is_idle(
    it: Fleet, diary: Diary
) -> None:
    """The long one does not end before they have; each runs once."""
    await it.host()
    await it.host()
    tasks = [SHORT] * 150 + [diary.task("long", wait=True)] + [SHORT] * 150
    group = await it.group(*tasks, workers=1, worker_allocation_plan={"worker_count": 1})

    async def all_but_one() -> bool:
        return (await it.client.group(group)).tasks_succeeded == 300

    await it.until(all_but_one)
    assert diary.began("long") == 1
    diary.go("long")
    info = await it.settled(group)
    assert (info.result, info.tasks_succeeded) == (TaskGroupResult.SUCCESS, 301)
