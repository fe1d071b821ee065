"""Which groups are judged, with how many statements, and what holds nothing up (C-33)."""

import pytest

from mitosis.store.leases.doubt import due_judgements
from mitosis.store.leases.look import look
from mitosis.store.leases.scheduler import assign_round
from mitosis.store.managers.views import get_manager
from mitosis.store.pg.database import Database
from tests.integration.store.leases.test_look import group_of, judged_now, with_failures
from tests.support.campaigns import failed, world


@pytest.mark.parametrize("failures", [2, 6])
async def test_hosts_of_an_ended_group_are_not_judged(database: str, failures: int) -> None:
    async with world(database) as w:
        bad, _ = await with_failures(w, failures)
        group = await group_of(w, bad)
        await w.cancel(group)
        await w.control.discard(group)
        assert (await assign_round(w.store)).judged_again_in_seconds is None
        await w.pokes()
        await judged_now(w)
        assert not [line for line in (await look(w.store)).what if "judgement" in line]
        assert (await get_manager(w.store, bad.manager_id)).failures == []


async def test_one_statement_reads_what_is_known_about_hosts_of_all_groups_in_doubt(
    database: str,
) -> None:
    """A look comes every few seconds, and many groups may be in doubt."""
    async with world(database) as w:
        for number in range(3):
            group = await w.group(f"group-{number}")
            await w.submit(group, 3)
            bad, other = [await w.leased_host(group), await w.leased_host(group)]
            tasks = (await bad.claim()).tasks
            await bad.report(*(failed(task, exit_code=42) for task in tasks[:2]))
            assert other.epoch > bad.epoch
        await judged_now(w)
        seen = list[str]()
        async with (
            Database.open(database, observe=lambda name, _: seen.append(name)) as observed,
            observed.connection() as connection,
        ):
            lines = await due_judgements(connection, w.store.quarantine_after)
        assert len(lines) == 3
        assert [name for name in seen if "doubt.sql" in name] == [
            "leases/doubt.sql groups_in_doubt",
            "leases/doubt.sql suspects",
        ]
