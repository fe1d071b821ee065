"""The figures of the registry, as metrics show them."""

import pytest

from mitosis.store.registry.figures import RegistryFigures, registry_figures
from mitosis.store.services.contact import drain_worker
from mitosis.store.users.accounts import create_user, ensure_admin
from tests.support.campaigns import World, world
from tests.support.worker_services import healthy, registered, task


def covered(figures: RegistryFigures) -> dict[tuple[str, str], tuple[int, dict[int, int]]]:
    """Active services, and tasks by available services, of each namespace."""
    found: dict[tuple[str, str], tuple[int, dict[int, int]]] = {}
    for row in figures.coverage:
        found.setdefault((row.group_name, row.namespace), (row.active, {}))[1][row.available] = (
            row.tasks
        )
    return found


def by_health(figures: RegistryFigures) -> dict[str, int]:
    return {row.health: row.services for row in figures.services}


def churn(figures: RegistryFigures) -> dict[tuple[str, str], int]:
    return {(row.event, row.reason): row.registrations for row in figures.churn}


async def figures_of_alice(w: World) -> RegistryFigures:
    return await registry_figures(w.store, w.user_id)


@pytest.mark.spec("C-20", "C-21")
async def test_only_services_that_can_execute_a_task_now_count(database: str) -> None:
    async with world(database) as w:
        a, b, c = map(task, "abc")
        other = {"namespace": "sound", "name": "mix", "version": "1"}
        await healthy(w, "one", a, b)
        late = await healthy(w, "late", a, b, other)
        drained = await healthy(w, "drained", a)
        await registered(w, "new", a, c)
        assert covered(await figures_of_alice(w)) == {
            ("alice", "images"): (3, {3: 1, 2: 1, 0: 1}),
            ("alice", "sound"): (1, {1: 1}),
        }
        await late.ago(121)
        await drain_worker(w.store, drained.made.worker_uuid)
        figures = await figures_of_alice(w)
        assert covered(figures) == {
            ("alice", "images"): (1, {1: 2, 0: 1}),
            ("alice", "sound"): (0, {0: 1}),
        }
        assert by_health(figures) == {"healthy": 2, "registered": 1, "unhealthy": 1}
        ages = {row.health.value: row.heartbeat_age_seconds for row in figures.services}
        assert ages["registered"] is None
        assert 121 <= (ages["unhealthy"] or 0) < 150
        assert (ages["healthy"] or 0) < 60


async def test_many_services_of_one_task_are_one_number(database: str) -> None:
    async with world(database) as w:
        for number in range(6):
            await healthy(w, f"w-{number}")
        assert covered(await figures_of_alice(w)) == {("alice", "images"): (6, {4: 1})}


async def test_registrations_count_as_long_as_they_are_recent(database: str) -> None:
    async with world(database) as w:
        await (await healthy(w, "one")).goodbye("a reason of its own")
        await healthy(w, "two", incarnation=1)
        await healthy(w, "two", incarnation=2)
        old = await healthy(w, "old")
        await old.ago(301)
        assert churn(await figures_of_alice(w)) == {
            ("began", ""): 3,
            ("ended", "goodbye"): 1,
            ("ended", "new_incarnation"): 1,
        }


async def test_users_see_the_figures_of_their_user_groups(database: str) -> None:
    async with world(database) as w:
        await healthy(w, "one")
        other = await create_user(w.store, "bob")
        assert await registry_figures(w.store, other.user_id) == RegistryFigures([], [], [])
        admin = await ensure_admin(w.store, "admin")
        assert covered(await registry_figures(w.store, admin.user_id)) == {
            ("alice", "images"): (1, {1: 1})
        }
