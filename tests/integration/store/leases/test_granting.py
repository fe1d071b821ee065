"""Taking an offer: it is taken once, by the manager that it was made to."""

import pytest

from mitosis.contracts.errors import LeaseLost
from mitosis.store.leases.granting import get_grant, take_lease, task_group_of_manager
from mitosis.store.leases.scheduler import assign_round
from tests.support.campaigns import world


async def test_an_offer_is_taken_by_its_manager_and_again_by_a_repeated_call(
    database: str,
) -> None:
    async with world(database) as w:
        group = await w.group()
        await w.submit(group)
        host, other = await w.host(), await w.host()
        await assign_round(w.store)
        epoch = await host.offered_epoch()
        with pytest.raises(LeaseLost):
            await get_grant(w.store, host.manager_id, epoch)
        with pytest.raises(LeaseLost):
            await take_lease(w.store, other.manager_id, epoch)
        grant = await take_lease(w.store, host.manager_id, epoch)
        assert (grant.epoch, grant.task_group_id, grant.lease_state) == (epoch, group, "active")
        assert await take_lease(w.store, host.manager_id, epoch) == grant
        assert await get_grant(w.store, host.manager_id, epoch) == grant
        assert await task_group_of_manager(w.store, other.manager_id) is None
