"""What Temporal's details say of a host that serves no task group: the words of `explain`."""

from uuid import UUID

import pytest

from mitosis.store.leases import scheduler
from mitosis.store.leases.look import look
from mitosis.store.leases.scheduler import assign_round
from mitosis.store.managers import explain
from mitosis.store.managers.changes import delete_manager
from mitosis.store.managers.draining import drain_manager, resume_manager
from mitosis.store.managers.explain import explain_manager
from tests.support.campaigns import Host, World, world


async def chain_of(w: World, host: Host) -> tuple[str, ...]:
    return (await w.control.observe_manager(host.manager_id)).chain


async def situation(w: World, host: Host) -> int | None:
    return (await look(w.store)).idle_hosts.get(host.manager_id)


async def test_the_chain_has_the_words_of_explain_and_the_look_finds_each_change(
    database: str,
) -> None:
    async with world(database) as w:
        plain, tagged = await w.group("plain"), await w.group("tagged", tags={"gpu"})
        host = await w.host(tags=["x86"])
        assert (await chain_of(w, host), await situation(w, host)) == ((), None), "no task yet"
        await w.submit(tagged)
        lacks, before = await chain_of(w, host), await situation(w, host)
        name = (await explain_manager(w.store, host.manager_id)).manager_name
        assert lacks == (
            "tagged: lacks gpu; the task group needs all of gpu",
            f"the smallest change: tag gpu on {name} and refresh the hosts of tagged",
        )
        assert before is not None
        assert await situation(w, host) == before, "nothing but time has passed"

        await drain_manager(w.store, host.manager_id)
        await w.submit(plain)
        explained = await explain_manager(w.store, host.manager_id)
        drained = await chain_of(w, host)
        assert drained == (
            *(f"{group.task_group_name}: {group.chain}" for group in explained.groups),
            f"the smallest change: {explained.change}",
        )
        assert len(explained.groups) == 2
        assert await situation(w, host) not in (before, None)

        await resume_manager(w.store, host.manager_id)
        assert await chain_of(w, host) == (), "it is about to be given to plain"
        await assign_round(w.store)
        await host.take(plain)
        await host.renew(started=(await host.claim(1)).tasks)
        assert (await chain_of(w, host), await situation(w, host)) == ((), None), "it works"


async def test_a_host_that_is_silent_or_deleted_has_no_chain(database: str) -> None:
    async with world(database) as w:
        await w.submit(await w.group("tagged", tags={"gpu"}))
        silent, gone = await w.host(), await w.host()
        await w.rows(
            "UPDATE manager_live SET last_contact_at = now() - interval '11 s' FROM managers AS m"
            " WHERE m.id = manager_id AND m.uuid = %s RETURNING manager_id",
            silent.manager_id,
        )
        assert (await chain_of(w, silent), await situation(w, silent)) == ((), None)
        assert await chain_of(w, gone) != ()
        await delete_manager(w.store, gone.manager_id)
        assert (await chain_of(w, gone), await situation(w, gone)) == ((), None)


async def test_a_large_fleet_costs_no_pokes_and_no_decisions(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler, "IDLE_HOSTS_AT_ONCE", 2)
    monkeypatch.setattr(explain, "MOST_HOSTS", 2)
    async with world(database) as w:
        await w.submit(await w.group("tagged", tags={"gpu"}))
        hosts = [await w.host(), await w.host()]
        assert {await situation(w, host) is None for host in hosts} == {False}
        assert len(await chain_of(w, hosts[0])) == 2
        hosts.append(await w.host())
        assert {await situation(w, host) is None for host in hosts} == {True}
        assert await chain_of(w, hosts[0]) == ()


async def test_only_task_groups_that_some_lines_show_are_named_and_the_rest_counted(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mitosis.scheduling.explain_host.GROUPS_SHOWN", 1)
    async with world(database) as w:
        groups: list[UUID] = [await w.group(f"g{number}", tags={"gpu"}) for number in range(3)]
        for group in groups:
            await w.submit(group)
        lines = await chain_of(w, await w.host())
        assert lines[0].startswith("g0: lacks gpu")
        assert lines[1] == "2 more task groups"
