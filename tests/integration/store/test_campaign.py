"""One campaign through the store alone, from registration to settlement."""

import pytest

from mitosis.contracts.control import ReleaseReason, ReleaseRequest
from mitosis.store.groups.views import read_group
from mitosis.store.managers.release import release_lease
from mitosis.store.managers.views import observe_manager
from tests.support.campaigns import world


@pytest.mark.spec("S002-122", "S000-115")
async def test_a_campaign_from_registration_to_settlement(database: str) -> None:
    async with world(database) as w:
        group = await w.group()
        submitted = await w.submit(group, 5)
        assert submitted.created == 5
        host = await w.leased_host(group)
        claimed = await host.claim()
        assert [task.task_id for task in claimed.tasks] == submitted.task_ids

        await host.renew(started=claimed.tasks[:2])
        info = await read_group(w.store, group)
        assert (info.tasks_total, info.tasks_running, info.waiting_for) == (5, 2, None)
        assert (await host.finish(claimed.tasks)).statuses == ["committed"] * 5
        assert (await w.close(group)).state == "closed"
        view = await w.control.finalize(group)
        assert (view.state, view.settled) == ("complete", False)

        assert (await host.claim()).standing == "ending"
        assert (await host.renew()).order is not None
        request = ReleaseRequest(
            manager_id=host.manager_id, epoch=host.epoch, reason=ReleaseReason.GROUP_ENDED
        )
        assert (await release_lease(w.store, request)).status == "released"
        assert (await release_lease(w.store, request)).status == "already_ended"
        assert (await observe_manager(w.store, host.manager_id)).environments[0].cleanable
        assert not (await w.control.settle(group)).settled
        await host.clean(group)
        view = await w.control.settle(group)
        assert (view.settled, view.result) == (True, "success")
        info = await read_group(w.store, group)
        assert (info.tasks_completed, info.tasks_total, info.settled) == (5, 5, True)
        await w.check()
