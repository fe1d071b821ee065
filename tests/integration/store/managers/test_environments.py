"""Environments: every change is a compare-and-set by the table (protocol P9)."""

import pytest

from mitosis.contracts.control import ReleaseReason, ReleaseRequest
from mitosis.contracts.errors import InvalidRequest, InvalidTransition, LeaseLost, NotFound
from mitosis.contracts.lifecycle import ENVIRONMENT, EnvironmentEvent, EnvironmentState
from mitosis.store.groups.explain import explain_group
from mitosis.store.groups.views import read_group
from mitosis.store.leases.granting import take_lease
from mitosis.store.leases.scheduler import assign_round
from mitosis.store.managers.environments import get_environment
from mitosis.store.managers.release import release_lease
from mitosis.store.managers.views import get_manager, observe_manager
from tests.support.campaigns import Host, hook, world


async def released(host: Host, reason: ReleaseReason = ReleaseReason.MOVED) -> None:
    request = ReleaseRequest(manager_id=host.manager_id, epoch=host.epoch, reason=reason)
    await release_lease(host.world.store, request)


@pytest.mark.parametrize("state", list(EnvironmentState))
@pytest.mark.parametrize(
    "event", ["preparing", "prepared", "setup_failed", "tear_down", "postpone", "cleaned"]
)
async def test_the_table_decides_every_edge(
    database: str, state: EnvironmentState, event: str
) -> None:
    async with world(database) as w:
        group = await w.group()
        await w.submit(group, 1)
        host = await w.leased_host(group)
        if event in ("tear_down", "postpone", "cleaned"):
            await released(host)
        await w.rows("UPDATE environments SET state = %s", state.value)
        goal = {
            "preparing": "preparing",
            "prepared": "ready",
            "setup_failed": "tearing_down",
            "tear_down": "tearing_down",
            "postpone": "owed",
            "cleaned": "gone",
        }[event]
        asked = EnvironmentEvent("prepare_again" if event == "preparing" else event)
        allowed = state == goal or (state, asked) in ENVIRONMENT.table
        if allowed:
            assert await host.environment(group, event, epoch=host.epoch) == goal
        else:
            with pytest.raises(InvalidTransition):
                await host.environment(group, event, epoch=host.epoch)
        now = await w.value("SELECT state FROM environments")
        assert now == (goal if allowed else state.value)


async def test_setup_belongs_to_the_lease_it_names(database: str) -> None:
    async with world(database) as w:
        group = await w.group()
        await w.submit(group, 1)
        host = await w.host()
        await assign_round(w.store)
        epoch = await host.offered_epoch()
        with pytest.raises(LeaseLost):
            await host.environment(group, "preparing", epoch=epoch)
        with pytest.raises(InvalidRequest):
            await host.environment(group, "preparing")
        await take_lease(w.store, host.manager_id, epoch)
        with pytest.raises(NotFound):
            await host.environment(group, "prepared", epoch=epoch)
        with pytest.raises(LeaseLost):
            await host.environment(group, "preparing", epoch=epoch + 1)
        assert await host.environment(group, "preparing", epoch=epoch) == "preparing"
        assert await host.environment(group, "preparing", epoch=epoch) == "preparing"
        with pytest.raises(NotFound):
            await host.environment(w.user_id, "preparing", epoch=epoch)


async def test_no_teardown_under_a_live_lease_of_a_group_that_goes_on(database: str) -> None:
    async with world(database) as w:
        group = await w.group()
        await w.submit(group, 1)
        host = await w.leased_host(group)
        with pytest.raises(InvalidTransition):
            await host.environment(group, "tear_down")
        await w.cancel(group)
        assert await host.environment(group, "tear_down") == "tearing_down"
        assert (await host.claim()).tasks == []
        grant = await get_environment(w.store, host.manager_id, group)
        assert (grant.state, grant.worker_count, grant.group_name) == ("tearing_down", 1, "alice")
        assert await host.environment(group, "cleaned", degraded=True) == "gone"
        assert await host.environment(group, "cleaned") == "gone", "again is success"
        assert await w.value("SELECT degraded FROM environments")
        with pytest.raises(NotFound):
            await get_environment(w.store, host.manager_id, group)


async def test_a_dormant_environment_is_kept_and_used_again(database: str) -> None:
    async with world(database) as w:
        group = await w.group()
        await w.submit(group, 1)
        host = await w.leased_host(group)
        await released(host)
        view = await observe_manager(w.store, host.manager_id)
        assert [(e.state, e.cleanable) for e in view.environments] == [("ready", False)]
        cold = await w.host()
        await assign_round(w.store)
        assert (await observe_manager(w.store, cold.manager_id)).lease is None, (
            "the warm one goes first"
        )
        await host.take(group, prepare=False)
        assert len((await host.claim()).tasks) == 1
        await w.cancel(group)
        await released(host)
        view = await observe_manager(w.store, host.manager_id)
        assert [(e.state, e.cleanable) for e in view.environments] == [("ready", True)]


async def test_half_made_setups_are_to_be_cleaned_before_anything_else(database: str) -> None:
    async with world(database) as w:
        group = await w.group()
        await w.submit(group, 1)
        host = await w.host()
        await assign_round(w.store)
        await host.take(group, prepare=False)
        await host.environment(group, "preparing", epoch=host.epoch)
        await released(host, ReleaseReason.SETUP_LOST)
        view = await observe_manager(w.store, host.manager_id)
        assert [(e.state, e.cleanable) for e in view.environments] == [("preparing", True)]
        assert (await assign_round(w.store)).offered == 0
        await host.clean(group)
        answer = await assign_round(w.store)
        assert answer.offered == 0, "its pause has begun"
        assert answer.next_round_in_seconds == pytest.approx(30, abs=5)
        await w.rows("UPDATE host_failures SET next_at = now()")
        assert (await assign_round(w.store)).offered == 1


@pytest.mark.spec("S002-110", "S002-137", "S002-139", "S002-144")
async def test_a_failed_setup_is_told_kept_and_not_tried_again_there(database: str) -> None:
    async with world(database) as w:
        group = await w.group()
        await w.submit(group, 1)
        host = await w.host()
        await assign_round(w.store)
        await host.take(group, prepare=False)
        running = hook("running")
        await host.environment(group, "preparing", epoch=host.epoch, hook=running)
        ended = hook("failed", exit_code=3, message="no GPU", stderr_tail="a\0b")
        await host.environment(group, "setup_failed", epoch=host.epoch, hook=ended)
        await host.environment(group, "setup_failed", epoch=host.epoch, hook=ended)
        await released(host, ReleaseReason.SETUP_FAILED)
        info = await read_group(w.store, group)
        assert [(run.state, run.exit_code) for run in info.hook_runs] == [("failed", 3)]
        assert info.waiting_for == (
            "setup failed on host: no GPU; it waits for another host; repair one, then:"
            " mitosis manager retry-setup host --task-group campaign"
        )
        assert (await assign_round(w.store)).offered == 0
        other = await w.host()
        assert (await assign_round(w.store)).offered == 1
        assert (await observe_manager(w.store, other.manager_id)).lease is not None


@pytest.mark.parametrize("then", ["again", "torn down", "lease lost"])
async def test_a_setup_that_has_not_ended_is_listed_as_interrupted(
    database: str, then: str
) -> None:
    async with world(database) as w:
        group = await w.group()
        await w.submit(group, 1)
        host = await w.host()
        await assign_round(w.store)
        await host.take(group, prepare=False)

        async def listed() -> list[str]:
            return [run.state for run in (await read_group(w.store, group)).hook_runs]

        first, second = hook("running"), hook("running", started_at="2030-01-01T00:10:00Z")
        await host.environment(group, "preparing", epoch=host.epoch, hook=first)
        assert await listed() == ["running"]
        if then == "again":  # by the next process of the agent
            await host.environment(group, "preparing", epoch=host.epoch, hook=second)
            assert await listed() == ["interrupted", "running"]
            ended = hook("succeeded", exit_code=0, started_at="2030-01-01T00:10:00Z")
            await host.environment(group, "prepared", epoch=host.epoch, hook=ended)
            assert await listed() == ["interrupted", "succeeded"]
            return
        await w.cancel(group)
        if then == "torn down":
            await host.environment(group, "tear_down")
            await host.environment(group, "cleaned")
        else:
            await w.rows("UPDATE leases SET state = 'ended', ended_at = now()")
        assert await listed() == ["interrupted"]


@pytest.mark.parametrize("torn_down", [False, True])
@pytest.mark.parametrize(
    ("event", "state", "status"), [("prepared", "succeeded", 0), ("setup_failed", "failed", 3)]
)
async def test_a_setup_that_is_reported_after_the_loss_of_its_lease_is_listed_as_it_ended(
    database: str, event: str, state: str, status: int, torn_down: bool
) -> None:
    async with world(database) as w:
        group = await w.group()
        await w.submit(group, 1)
        host = await w.host()
        await assign_round(w.store)
        await host.take(group, prepare=False)
        await host.environment(group, "preparing", epoch=host.epoch, hook=hook("running"))
        await w.rows("UPDATE leases SET alive_until = now()")
        await released(host, ReleaseReason.LOST)
        if torn_down:
            await host.environment(group, "tear_down")
        before = (await get_manager(w.store, host.manager_id)).environments
        ended = hook(state, exit_code=status)
        for _ in range(2):
            with pytest.raises((LeaseLost, InvalidTransition)):
                await host.environment(group, event, epoch=host.epoch, hook=ended)
        [listed] = (await read_group(w.store, group)).hook_runs
        assert (listed.state, listed.exit_code) == (state, status)
        assert (await get_manager(w.store, host.manager_id)).environments == before


async def test_a_teardown_that_has_not_ended_is_listed_as_interrupted(database: str) -> None:
    async with world(database) as w:
        group = await w.group()
        await w.submit(group, 1)
        host = await w.leased_host(group)

        async def listed() -> list[tuple[str, str]]:
            return [(one.kind, one.state) for one in (await read_group(w.store, group)).hook_runs]

        await w.cancel(group)
        again = "2030-01-01T00:10:00Z"
        await host.environment(group, "tear_down", hook=hook("running"))
        assert await listed() == [("teardown", "running")]
        await host.environment(group, "tear_down", hook=hook("running", started_at=again))
        assert await listed() == [("teardown", "interrupted"), ("teardown", "running")]
        ended = hook("succeeded", exit_code=0, started_at=again)
        await host.environment(group, "cleaned", hook=ended)
        assert await listed() == [("teardown", "interrupted"), ("teardown", "succeeded")]


async def test_a_teardown_is_interrupted_once_it_is_owed(database: str) -> None:
    async with world(database) as w:
        group = await w.group()
        await w.submit(group, 1)
        host = await w.leased_host(group)
        await w.cancel(group)
        await host.environment(group, "tear_down", hook=hook("running"))
        await w.rows("UPDATE environments SET state = 'owed'")
        assert [one.state for one in (await read_group(w.store, group)).hook_runs] == [
            "interrupted"
        ]


async def test_a_setup_that_could_not_start_is_charged_to_the_host_and_tried_again(
    database: str,
) -> None:
    async with world(database) as w:
        group = await w.group()
        await w.submit(group, 1)
        host = await w.host()
        await assign_round(w.store)
        for failures, pause in ((1, 10), (2, 20)):
            await host.take(group, prepare=False)
            await host.environment(group, "preparing", epoch=host.epoch)
            waits = hook("waiting", message="cannot start /bin/sh: no process")
            await host.environment(group, "setup_failed", epoch=host.epoch, hook=waits)
            await released(host, ReleaseReason.SETUP_FAILED)
            await host.environment(group, "cleaned")
            shown = (await get_manager(w.store, host.manager_id)).failures
            assert [(f.kind, f.failures) for f in shown] == [("workers_not_started", failures)]
            assert "cannot start /bin/sh: no process" in shown[0].line
            answer = await assign_round(w.store)
            assert answer.offered == 0
            assert answer.next_round_in_seconds == pytest.approx(pause, abs=3)
            await w.rows("UPDATE host_failures SET next_at = now()")
            assert (await assign_round(w.store)).offered == 1
        await host.take(group, prepare=False)
        await host.environment(group, "preparing", epoch=host.epoch)
        ran = hook("succeeded", exit_code=0, started_at="2030-01-01T00:10:00Z")
        await host.environment(group, "prepared", epoch=host.epoch, hook=ran)
        states = [run.state for run in (await read_group(w.store, group)).hook_runs]
        assert states == ["succeeded"], "what waits is shown until the next run"


async def test_a_teardown_that_cannot_begin_is_owed_and_named(database: str) -> None:
    why = "cannot start /bin/sh: no process; it is tried again"
    async with world(database) as w:
        group, other = await w.group(), await w.group("other")
        await w.submit(group, 1)
        host = await w.leased_host(group)
        await w.submit(other, 1)
        await host.finish((await host.claim()).tasks)
        await w.close(group)
        await w.control.finalize(group)
        await released(host, ReleaseReason.GROUP_ENDED)
        await host.environment(group, "tear_down")
        due = await w.value("SELECT changed_at FROM environments")
        await host.environment(group, "postpone", hook=hook("waiting", message=why))
        await host.environment(group, "tear_down")
        later = hook("waiting", message=why, started_at="2030-01-01T00:10:00Z", retry_count=2)
        await host.environment(group, "postpone", hook=later)
        assert await w.value("SELECT changed_at FROM environments") == due, "due since then"
        assert (await assign_round(w.store)).offered == 0
        shown = await get_manager(w.store, host.manager_id)
        assert (shown.environments, shown.debts) == ({"campaign": "owed"}, {"campaign": why})
        for waits in (group, other):
            info = await read_group(w.store, waits)
            assert why in str(info.waiting_for), waits
        assert why in str((await explain_group(w.store, other)).model_dump())
        await host.environment(group, "tear_down")
        await host.environment(group, "cleaned", hook=hook("succeeded", exit_code=0))
        assert (await get_manager(w.store, host.manager_id)).debts == {}
        assert (await assign_round(w.store)).offered == 1


@pytest.mark.spec("S000-137")
async def test_a_manager_that_cleans_up_is_offered_nothing(database: str) -> None:
    async with world(database) as w:
        group, other = await w.group(), await w.group("other")
        await w.submit(group, 1)
        host = await w.leased_host(group)
        await w.submit(other, 1)
        await w.cancel(group)
        await released(host, ReleaseReason.GROUP_ENDED)
        assert (await assign_round(w.store)).offered == 0, "not cleaned yet"
        await host.environment(group, "tear_down")
        assert (await get_manager(w.store, host.manager_id)).state == "cleanup"
        assert (await assign_round(w.store)).offered == 0
        await host.environment(group, "cleaned")
        assert (await assign_round(w.store)).offered == 1


@pytest.mark.spec("S002-263")
async def test_a_manager_goes_from_idle_through_its_group_and_back(database: str) -> None:
    async with world(database) as w:
        group = await w.group()
        await w.submit(group, 1)
        host = await w.host()

        async def state() -> str:
            return str((await get_manager(w.store, host.manager_id)).state)

        assert await state() == "idle"
        await assign_round(w.store)
        assert await state() == "preparing"
        await host.take(group)
        assert await state() == "executing"
        await host.finish((await host.claim()).tasks)
        await w.close(group)
        await w.control.finalize(group)
        await released(host, ReleaseReason.GROUP_ENDED)
        await host.environment(group, "tear_down")
        assert await state() == "cleanup"
        await host.environment(group, "cleaned")
        assert await state() == "idle"


async def test_an_open_offer_keeps_the_environment_that_it_will_use(database: str) -> None:
    """A stale order to tear down comes after the host was offered to the same task group again."""
    async with world(database) as w:
        group = await w.group()
        await w.submit(group)
        host = await w.leased_host(group)
        await host.finish((await host.claim()).tasks)
        await released(host)
        await w.submit(group)
        assert (await assign_round(w.store)).offered == 1
        with pytest.raises(InvalidTransition, match="live lease"):
            await host.environment(group, "tear_down")
        await host.take(group, prepare=False)
        assert len((await host.claim()).tasks) == 1, "the environment is still ready"
