"""What is printed when a task group has settled."""

import asyncio
import io

import pytest

from mitosis.cli.follow.display import NoDisplay
from mitosis.cli.follow.failures import Failures
from mitosis.cli.follow.follower import Follower
from mitosis.cli.group.view import group_item
from mitosis.client.client import Client
from tests.support.infos import ID, group, task

HOST = {
    "manager_id": ID,
    "manager_name": "h3",
    "tasks_failed": 60,
    "line": "may be broken: 60 tasks failed there, and none succeeded",
}


@pytest.mark.parametrize("host", [HOST, None])
def test_the_host_that_all_failures_come_from_is_named(host: dict[str, object] | None) -> None:
    ended = group(state="complete", settled=True, result="tasks_failed", failing_host=host)
    failures, out = Failures(), io.StringIO()
    failures.add(task(manager_name="h3"))

    async def conclude() -> None:
        async with Client("http://127.0.0.1:1", token="none") as client:
            Follower(client, NoDisplay(out)).conclude(ended, failures)

    asyncio.run(conclude())
    text = "h3 may be broken: 60 tasks failed there, and none succeeded"
    assert (f" {text}\n" in out.getvalue()) is (host is not None)
    shown = dict(group_item(ended).fields)
    assert shown.get("failures") == (None if host is None else text)
