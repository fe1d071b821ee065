"""One campaign through the store alone, from registration to settlement."""

import pytest

from tests.support.campaigns import world


@pytest.mark.spec("S002-121", "S002-122")
async def test_a_campaign_from_registration_to_settlement(database: str) -> None:
    async with world(database) as w:
        group = await w.group()
        submitted = await w.submit(group, 5)
        assert submitted.created == 5
        host = await w.leased_host(group)
        claimed = await host.claim()
        assert [task.task_id for task in claimed.tasks] == submitted.task_ids
        await host.renew(started=claimed.tasks[:2])
        info = await w.groups.get(group)
        assert (info.tasks_total, info.tasks_running, info.waiting_for) == (5, 2, None)
        assert (await host.finish(claimed.tasks)).statuses == ["committed"] * 5
        view = await w.close(group)
        assert (view.state, view.unfinished) == ("closed", 0)
        view = await w.groups.finalize(group)
        assert (view.state, view.settled) == ("complete", False)
        assert (await host.claim()).standing == "ending"
        await host.clean(group)
        assert not (await w.groups.settle(group)).settled
        view_m = await w.managers.observe(host.manager_id)
        assert view_m.lease is not None and view_m.lease.state == "ending"
