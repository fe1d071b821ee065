"""Decisions are recorded with their inputs, made again later, and forgotten in the end."""

import re
from datetime import UTC, datetime, timedelta, timezone

import pytest

from mitosis.contracts.errors import NotFound
from mitosis.store.groups.explain import explain_group_at
from mitosis.store.leases import decisions
from mitosis.store.leases.scheduler import assign_round
from tests.support.campaigns import World, world

NO_HOST = "gave it no host: it had no host"
COUNT = "SELECT count(*) FROM scheduling_decisions"


async def at(w: World) -> datetime:
    now = await w.value("SELECT clock_timestamp()")
    assert isinstance(now, datetime)
    return now


async def test_a_decision_is_explained_by_what_it_knew_and_not_by_what_holds_now(
    database: str,
) -> None:
    async with world(database) as w:
        first, late = await w.group("first", priority=5), await w.group("late")
        for group in (first, late):
            await w.submit(group)
        before = await at(w)
        with pytest.raises(NotFound, match="is kept: none"):
            await explain_group_at(w.store, late, before)
        host = await w.host()
        await assign_round(w.store)
        then = await at(w)
        await w.rows("UPDATE managers SET tags = '{}', name = 'renamed', draining = true")
        await w.rows("UPDATE task_groups SET priority = 99 WHERE name = 'late'")

        explained = await explain_group_at(w.store, late, then)
        assert (explained.waits, explained.code) == (True, "decided")
        (reason,) = explained.hosts
        assert (reason.manager_id, reason.code) == (host.manager_id, "rank")
        assert reason.line == ("is offered to first, which goes first: priority 5 is above 0")
        assert reason.manager_name != "renamed"
        assert explained.change == "set the priority of late above 5"
        won = await explain_group_at(w.store, first, then)
        zone = timezone(timedelta(hours=5, minutes=30))
        for group, words in ((first, f"offered {reason.manager_name} to it"), (late, NO_HOST)):
            line = (await explain_group_at(w.store, group, then.astimezone(zone))).line
            assert line.endswith(f"+05:30 {words}")
            assert re.match(r"the decision of \d{4}-\d\d-\d\d \d\d:\d\d:\d\d\+", line)
        assert not won.waits
        with pytest.raises(NotFound, match="the oldest is of"):
            await explain_group_at(w.store, late, before)
        with pytest.raises(NotFound, match="was not about this task group"):
            await explain_group_at(w.store, await w.group("new"), then)

        await w.host()
        await assign_round(w.store)
        last = await explain_group_at(w.store, late, await at(w))
        assert not last.waits, "the last decision before the time counts"
        assert (await explain_group_at(w.store, late, then)).waits
        await w.submit(late)
        await w.host()
        await w.submit(await w.group("third"))
        await assign_round(w.store)
        had = await explain_group_at(w.store, late, await at(w))
        assert had.line.endswith("gave it no further host: it had 1 host")


async def test_only_rounds_that_change_something_are_recorded_and_the_last_ones_are_kept(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decisions, "DECISIONS_KEPT", 2)
    async with world(database) as w:
        await assign_round(w.store)
        assert await w.value(COUNT) == 0
        for number in range(3):
            await w.submit(await w.group(f"g{number}"))
            await w.host()
            await assign_round(w.store)
            await assign_round(w.store)
            assert await w.value(COUNT) == min(number + 1, 2)
        assert datetime.now(UTC) > await w.value("SELECT max(decided_at) FROM scheduling_decisions")
