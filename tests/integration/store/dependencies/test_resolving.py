"""When children are resolved, and what holds that up."""

import pytest

from mitosis.store.dependencies import edges
from mitosis.store.dependencies.resolve import resolve_all
from mitosis.store.pg import database as pg
from tests.integration.store.dependencies.test_edges import after, number_of, states
from tests.support.campaigns import held, world


@pytest.mark.new_sessions
async def test_a_task_group_that_is_locked_for_long_holds_up_no_other(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pg, "LIMITS", pg.LIMITS.replace("lock_timeout=3s", "lock_timeout=50ms"))
    async with world(database) as w:
        groups = [await w.group(name) for name in ("first", "second")]
        for group in groups:
            await w.submit_tasks(group, [after(), after([0, 0])])
            host = await w.leased_host(group)
            await host.finish((await host.claim()).tasks)
        numbers = [await number_of(w, group) for group in groups]
        for locked, other in ((0, 1), (1, 0)):
            async with held(database) as one:
                await one.held.execute(
                    "SELECT FROM group_live WHERE group_id = %s FOR UPDATE", (numbers[locked],)
                )
                assert await resolve_all(w.store) == [numbers[locked]] * (locked == 0)
                await one.held.rollback()
            assert (await states(w, groups[other]))[1] == "ready"
        assert await resolve_all(w.store) == []
        assert (await states(w, groups[0]))[1] == "ready"


async def test_a_submit_resolves_what_is_due_before_its_own_transaction(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That one holds several groups, and earlier children of the same parent may be many."""
    async with world(database) as w:
        group = await w.group()
        (parent, *_) = (await w.submit_tasks(group, [after()] + [after([0, 0])] * 3)).task_ids
        host = await w.leased_host(group)
        await host.finish((await host.claim()).tasks)

        async def fail(*_: object) -> None:
            raise AssertionError("in the transaction of the submit")

        monkeypatch.setattr(edges, "resolve_some", fail)
        await w.submit_tasks(group, [after(parent)])
        assert await states(w, group) == ["succeeded"] + ["ready"] * 4
