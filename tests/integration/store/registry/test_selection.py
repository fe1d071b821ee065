"""Which worker service is chosen for a named task, and what is said when there is none."""

import pytest

from mitosis.contracts.errors import NoWorkersAvailable
from mitosis.store.registry.selection import find_available_worker, list_workers_for_task
from mitosis.store.services.contact import drain_worker
from mitosis.store.users.accounts import create_user
from tests.support.campaigns import World, world
from tests.support.worker_services import healthy, named, registered, task


async def ids(w: World) -> list[str]:
    found = await list_workers_for_task(w.store, named())
    if found:
        assert await find_available_worker(w.store, named()) == found[0]
    return [one.worker_id for one in found]


@pytest.mark.spec("S004-30", "S004-31", "S004-33", "S004-58")
async def test_workers_are_chosen_by_priority_and_then_by_the_last_heartbeat(database: str) -> None:
    async with world(database) as w:
        low = await healthy(w, "low", task(priority=-1))
        old = await healthy(w, "old")
        await healthy(w, "new")
        high = await healthy(w, "high", task(priority=101))
        await healthy(w, "other", task("crop", priority=999), task(version="2", priority=999))
        await registered(w, "silent", task(priority=999))
        assert await ids(w) == ["high", "new", "old", "low"]
        await old.heartbeat()
        assert await ids(w) == ["high", "old", "new", "low"]
        await high.ago(119)
        assert await ids(w) == ["high", "old", "new", "low"]
        await high.ago(1)
        assert await ids(w) == ["old", "new", "low"], "its heartbeat is older than 2 minutes"
        await old.goodbye()
        assert await ids(w) == ["new", "low"]
        await drain_worker(w.store, low.made.worker_uuid)
        assert await ids(w) == ["new"]
        await healthy(w, "new", task("crop"))
        assert await ids(w) == [], "a later registration left the task out"


@pytest.mark.spec("S004-32")
async def test_the_answer_has_the_configuration_of_the_association(database: str) -> None:
    async with world(database) as w:
        for size in (1, 2):
            await healthy(
                w,
                "one",
                task(configuration={"size": size}, priority=3),
                metadata={"version": "9"},
                connection_info={"connection_type": "unix", "path": "/run/one"},
            )
        found = await find_available_worker(w.store, named())
        assert (found.worker_id, found.metadata, found.priority) == ("one", {"version": "9"}, 3)
        assert (found.configuration, found.configuration_version) == ({"size": 2}, 2)
        assert (found.connection_type, found.connection_details["path"]) == ("unix", "/run/one")


@pytest.mark.spec("S004-35", "S004-06")
async def test_the_error_names_the_task_its_services_and_the_nearest_one(database: str) -> None:
    async with world(database) as w:
        await create_user(w.store, "bob")
        await healthy(w, "fine", task(version="2"), task("resized"), task("unlike"))
        drained = await healthy(w, "drained")
        await drain_worker(w.store, drained.made.worker_uuid)
        gone = await healthy(w, "gone")
        await gone.goodbye()
        with pytest.raises(NoWorkersAvailable) as refused:
            await find_available_worker(w.store, named())
        facts = refused.value.facts
        assert (facts["namespace"], facts["name"], facts["version"]) == ("images", "resize", "1")
        assert facts["nearest"] == ["images/resize@2", "images/resized@1"]
        assert [(one["worker_id"], one["health"]) for one in facts["supporting"]] == [
            ("drained", "healthy"),
            ("gone", "disconnected"),
        ]
        assert "drained is drained, gone is disconnected" in refused.value.message
        with pytest.raises(NoWorkersAvailable, match=r"none supports it$"):
            await find_available_worker(w.store, named(group="bob"))
