"""What Temporal's details say of a task group that waits: the words of `explain`."""

from uuid import UUID

import pytest

from mitosis.store.groups import explain
from mitosis.store.groups.assignment import refresh_managers
from mitosis.store.groups.explain import explain_group
from mitosis.store.leases.look import look
from mitosis.store.leases.scheduler import assign_round
from mitosis.store.managers.draining import drain_manager, resume_manager
from mitosis.store.managers.tags import set_tags
from tests.support.campaigns import World, world


async def chain_of(w: World, group: UUID) -> tuple[str, ...]:
    return (await w.control.observe_task_group(group)).chain


async def situation(w: World, group: UUID) -> int | None:
    return (await look(w.store)).situations.get(group)


async def test_the_chain_has_the_words_of_explain_and_the_look_finds_each_change(
    database: str,
) -> None:
    async with world(database) as w:
        other, group = await w.group("other"), await w.group("waiting", priority=-1, tags={"gpu"})
        await w.submit(other, 2)
        await w.leased_host(other)
        free = await w.host(tags=["x86"])
        await drain_manager(w.store, free.manager_id)
        assert (await chain_of(w, group), await situation(w, group)) == ((), None), "no task yet"
        await w.submit(group)
        first, before = await chain_of(w, group), await situation(w, group)
        explained = await explain_group(w.store, group)
        assert first == (
            *(f"{host.manager_name}: {host.chain}" for host in explained.hosts),
            f"the smallest change: {explained.change}",
        )
        assert len(explained.hosts) == 2
        assert first[1] == (
            "host: lacks gpu; the task group needs all of gpu; also is draining: it finishes what"
            " it runs and takes nothing new until it is resumed"
        )
        assert before is not None
        assert await situation(w, group) == before, "nothing but time has passed"
        assert await situation(w, other) not in (None, before)

        await resume_manager(w.store, free.manager_id)
        assert await chain_of(w, group) not in ((), first)
        resumed = await situation(w, group)
        assert resumed != before
        number = await w.value("SELECT id FROM managers WHERE uuid = %s", free.manager_id)
        async with w.database.transaction() as connection:
            await set_tags(connection, number, ["gpu"])
        await refresh_managers(w.store, group)
        await assign_round(w.store)
        await free.take(group)
        await free.renew(started=(await free.claim(1)).tasks)
        assert await chain_of(w, group) == ()
        assert await situation(w, group) not in (before, resumed)


async def test_hosts_beyond_the_first_are_counted_and_a_large_fleet_has_no_change(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(explain, "HOSTS_NAMED", 1)
    async with world(database) as w:
        group = await w.group("a", tags={"gpu"})
        await w.submit(group)
        for _ in range(3):
            await w.host()
        line = "host: lacks gpu; the task group needs all of gpu"
        more = "2 more hosts: mitosis explain names 200"
        assert (await chain_of(w, group))[:2] == (line, more)
        assert (await chain_of(w, group))[2].startswith("the smallest change: tag gpu on host")
        monkeypatch.setattr(explain, "MOST_HOSTS", 2)
        assert await chain_of(w, group) == (line, more)
