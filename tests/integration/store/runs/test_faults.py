"""What happens to a run when its hosts, its setup or the owner of its task group end its tasks."""

import pytest

from mitosis.contracts.control import Cancel, Close, ReleaseReason, ReleaseRequest
from mitosis.contracts.outcome import LOST_LIMIT
from mitosis.contracts.wire import ClaimedTask
from mitosis.store.leases.scheduler import assign_round
from mitosis.store.managers.release import release_lease
from tests.support.campaigns import Host, failed
from tests.support.failed_setups import fail_setup
from tests.support.runs import Runs, command, job, runs

FAILED_ROWS = """
SELECT count(*) FROM run_steps AS s JOIN step_tasks AS p ON p.step_id = s.id
 CROSS JOIN LATERAL unnest(p.task_ids) AS t (id)
  JOIN task_result AS r ON r.task_id = t.id AND r.state = 'failed' WHERE s.name = 'a'"""


async def lose(r: Runs, host: Host, tasks: list[ClaimedTask]) -> None:
    """Lose a host with the tasks that it runs, and have it come back."""
    if tasks:
        await host.renew(started=tasks)
    await r.w.rows("UPDATE leases SET alive_until = now() WHERE epoch = %s", host.epoch)
    lost = ReleaseRequest(manager_id=host.manager_id, epoch=host.epoch, reason=ReleaseReason.LOST)
    await release_lease(r.w.store, lost)
    host.held.clear()


async def test_a_task_that_always_ends_its_host_fails_its_step(database: str) -> None:
    steps = {"a": command("a"), "b": command("b", after={"a": "failure"})}
    async with runs(database) as r:
        run = await r.start(job(steps))
        group = await r.w.value("SELECT task_group FROM run_steps WHERE name = 'a'")
        host = r.hosts["one"]
        for _ in range(LOST_LIMIT):
            await r.w.rows("UPDATE open_task SET state = 0, not_before = NULL WHERE state = 4")
            await lose(r, host, (await host.claim()).tasks)
            answer = await host.hello()
            for owed in answer.owed:
                await host.clean(owed)
            await r.carry_on()
            await assign_round(r.w.store)
            await host.take(group)
        assert await r.states(run) == {"a": "failed", "b": "running"}
        (step, _) = (await r.view(run)).steps
        assert (step.failed, step.cancelled, step.open) == (1, 0, 0)
        await r.finish()
        assert (await r.view(run)).state == "failed"
        assert await r.states(run) == {"a": "failed", "b": "succeeded"}
        await r.w.check()


async def test_failures_in_doubt_are_counted_when_they_are_judged(database: str) -> None:
    """They fail on both hosts: until that is known, no task of the step has ended."""
    steps = {"a": command("a", count=12), "b": command("b", after={"a": "failure"})}
    async with runs(database) as r:
        run = await r.start(job(steps))
        group = await r.w.value("SELECT task_group FROM run_steps WHERE name = 'a'")
        tag = await r.w.value("SELECT tags[1] FROM task_groups WHERE uuid = %s", group)
        first, second = r.hosts["one"], await r.w.leased_host(group, tags=[tag])
        r.hosts["two"] = second
        for _ in range(40):
            for host in (first, second):
                tasks = (await host.claim(6)).tasks
                await host.report(*(failed(task, exit_code=42) for task in tasks))
                host.held.clear()
                await r.carry_on()
            step = (await r.view(run)).steps[0]
            rows = await r.w.value(FAILED_ROWS)
            assert (step.failed, step.open) == (rows, 12 - rows)
            if step.ended_at is not None:
                break
        assert (await r.states(run))["a"] == "failed"
        await r.w.check()


async def test_a_setup_that_fails_on_every_host_fails_the_steps_of_its_group(
    database: str,
) -> None:
    steps = {
        "a": command("a", count=2),
        "b": command("b", after="a"),
        "c": command("c", after={"a": "always"}, group="other"),
        "d": command("d", after={"b": "always"}),
    }
    groups = {
        "main": {"setup": {"command": ["prepare"]}, "tags": ["x"]},
        "other": {"standing": "one"},
    }
    async with runs(database) as r:
        run = await r.start(job(steps, groups=groups), own=True)
        group = (await r.view(run)).steps[0].task_group_id
        assert group is not None
        host = await r.w.host(tags=["x"])
        await assign_round(r.w.store)
        await fail_setup(group, host, exit_code=3)
        assert (await r.w.control.observe_task_group(group)).setup_failed
        await r.w.control.end_after_failed_setups(group)
        await r.w.discard_all(group)
        await r.carry_on()
        assert await r.states(run) == {
            "a": "failed",
            "b": "skipped",
            "c": "running",
            "d": "failed",
        }
        (step, *_) = (await r.view(run)).steps
        assert step.cancelled == 2
        assert "setup failed on host: exit code 3" in str(step.reason)
        await r.finish()
        view = await r.view(run)
        assert view.state == "failed"
        cleanup = str(next(one.reason for one in view.steps if one.name == "d"))
        assert cleanup.startswith("task_group_closed: ")
        assert cleanup.endswith(": setup failed on host: exit code 3")


@pytest.mark.parametrize("verb", [Cancel(reason="not now"), Close()], ids=["cancel", "close"])
async def test_a_task_group_that_is_cancelled_or_closed_by_hand(
    database: str, verb: Cancel | Close
) -> None:
    """The step that has its tasks there ends; the next one that needs the group fails with the reason."""
    steps = {"a": command("a", count=2), "b": command("b", after={"a": "always"})}
    async with runs(database) as r:
        run = await r.start(job(steps, groups={"main": {"tags": ["x"]}}), own=True)
        group = (await r.view(run)).steps[0].task_group_id
        assert group is not None
        r.hosts["x"] = await r.w.leased_host(group, tags=["x"])
        await r.w.apply(group, verb)
        await r.w.discard_all(group)
        await r.finish()
        view = await r.view(run)
        ended = "failed" if isinstance(verb, Cancel) else "succeeded"
        assert (view.state, view.stopped_by) == ("failed", None)
        assert [step.state.value for step in view.steps] == [ended, "failed"]
        assert str(view.steps[1].reason).startswith("task_group_closed: ")
        if isinstance(verb, Cancel):
            assert "not now" in str(view.steps[0].reason)
