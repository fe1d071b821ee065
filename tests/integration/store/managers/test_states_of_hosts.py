"""The state of a host says whether it may be offered (C-07)."""

import pytest

from mitosis.store.leases.scheduler import assign_round
from mitosis.store.managers.draining import drain_manager
from mitosis.store.managers.hello import say_goodbye
from mitosis.store.managers.release import release_over
from mitosis.store.managers.views import get_manager
from tests.support.campaigns import world


@pytest.mark.spec("C-07", "S002-74")
async def test_only_an_idle_host_is_offered(database: str) -> None:
    async with world(database) as w:
        over, works = await w.group("over"), await w.group("works")
        await w.submit(over)
        cleaning = await w.leased_host(over)
        await cleaning.claim()
        await w.cancel(over)
        await w.control.discard(over)
        await release_over(w.store, cleaning.manager_id, cleaning.epoch)
        await cleaning.environment(over, "tear_down")
        await w.submit(works, 100)
        executing = await w.leased_host(works)
        await executing.renew(started=(await executing.claim(1)).tasks)
        preparing = await w.host()
        assert (await assign_round(w.store)).offered == 1
        await preparing.take(works, prepare=False)
        await preparing.environment(works, "preparing", epoch=preparing.epoch, fingerprint="f")
        draining, stopped, silent, idle = [await w.host() for _ in range(4)]
        await drain_manager(w.store, draining.manager_id)
        await say_goodbye(w.store, stopped.manager_id, None)
        await w.rows(
            "UPDATE manager_live SET last_contact_at = now() - interval '100 s'"
            " WHERE manager_id = (SELECT id FROM managers WHERE uuid = %s)",
            silent.manager_id,
        )
        hosts = {
            "cleanup": cleaning,
            "executing": executing,
            "preparing": preparing,
            "draining": draining,
            "offline": stopped,
            "idle": idle,
        }
        shown = {
            name: await get_manager(w.store, host.manager_id)
            for name, host in {**hosts, "silent": silent}.items()
        }
        assert {name: info.state.value for name, info in shown.items()} == {
            **{name: name for name in hosts},
            "silent": "offline",
        }
        assert all(info.last_contact_at for info in shown.values()), "its last heartbeat"
        assert (await assign_round(w.store)).offered == 1
        assert await idle.offered_epoch()
