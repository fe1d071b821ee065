"""`explain` of a host: what it does, what keeps it from groups with work, and the change that works."""

from datetime import UTC, datetime
from uuid import uuid4

import pytest

from mitosis.contracts.errors import NotFound
from mitosis.store.leases.scheduler import assign_round
from mitosis.store.managers.changes import delete_manager
from mitosis.store.managers.draining import drain_manager, resume_manager
from mitosis.store.managers.explain import explain_manager, explain_manager_at
from mitosis.store.managers.views import observe_manager
from tests.support.campaigns import world


async def test_a_host_is_explained_and_the_smallest_change_brings_it_to_a_group(
    database: str,
) -> None:
    async with world(database) as w:
        group = await w.group("waiting", tags={"gpu"})
        host = await w.host(tags=["gpu"])
        idle = await explain_manager(w.store, host.manager_id)
        assert (idle.waits, idle.code, idle.groups) == (True, "free", ())
        assert (idle.line, idle.change) == (f"{idle.manager_name} is free", None)
        await w.submit(group)
        await drain_manager(w.store, host.manager_id)
        drained = await explain_manager(w.store, host.manager_id)
        assert (drained.waits, drained.code, drained.state) == (True, "draining", "draining")
        assert [(one.task_group_name, one.code, one.task_group_id) for one in drained.groups] == [
            ("waiting", "draining", group)
        ]
        assert drained.change == f"end the drain of {drained.manager_name}"
        await resume_manager(w.store, host.manager_id)
        given = await explain_manager(w.store, host.manager_id)
        assert (given.waits, given.line) == (
            False,
            f"{given.manager_name} is free; about to be given to waiting",
        )
        await assign_round(w.store)
        assert (await observe_manager(w.store, host.manager_id)).lease is not None
        await host.take(group)
        await host.renew(started=(await host.claim(1)).tasks)
        working = await explain_manager(w.store, host.manager_id)
        assert (working.waits, working.code, working.change) == (False, "working", None)
        assert working.line.startswith(f"{working.manager_name} works for waiting")


async def test_only_groups_of_the_given_user_groups_are_named(database: str) -> None:
    async with world(database) as w:
        await w.submit(await w.group("waiting"))
        host = await w.host()
        await drain_manager(w.store, host.manager_id)
        hidden = await explain_manager(w.store, host.manager_id, {"strangers"})
        assert (hidden.groups, hidden.more_groups, hidden.change) == ((), 1, None)


async def test_a_past_decision_is_explained_by_what_it_knew(database: str) -> None:
    async with world(database) as w:
        await w.submit(await w.group("first", priority=5))
        await w.submit(await w.group("late"))
        before = datetime.now(UTC)
        host = await w.host()
        with pytest.raises(NotFound, match="is kept: none"):
            await explain_manager_at(w.store, host.manager_id, before)
        await assign_round(w.store)
        then = datetime.now(UTC)
        await w.rows("UPDATE managers SET draining = true")
        past = await explain_manager_at(w.store, host.manager_id, then)
        assert (past.waits, past.code, past.state) == (False, "decided", None)
        assert past.line.endswith("is free; about to be given to first")
        assert [(one.task_group_name, one.code) for one in past.groups] == [
            ("first", "given"),
            ("late", "rank"),
        ]
        assert past.groups[1].line.endswith("priority 5 is above 0")
        late = await w.host()
        with pytest.raises(NotFound, match="was not about this host"):
            await explain_manager_at(w.store, late.manager_id, then)


async def test_a_host_that_is_silent_unknown_or_deleted(database: str) -> None:
    async with world(database) as w:
        await w.submit(await w.group("waiting"))
        host = await w.host()
        await w.rows(
            "UPDATE manager_live SET last_contact_at = now() - interval '42 s', offline = true"
        )
        silent = await explain_manager(w.store, host.manager_id)
        assert (silent.waits, silent.code, silent.state) == (True, "no_contact", "offline")
        assert silent.line.endswith("was last seen 42 s ago; silence of 10 s is allowed")
        assert silent.change == f"bring {silent.manager_name} back into contact"
        await delete_manager(w.store, host.manager_id, force=True)
        for missing in (host.manager_id, uuid4()):
            with pytest.raises(NotFound, match="no such manager"):
                await explain_manager(w.store, missing)
