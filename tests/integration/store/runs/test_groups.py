"""The task groups of a run: its own close by themselves, standing ones may refuse."""

from mitosis.contracts.runs import CancelRun
from mitosis.store.runs.stopping import cancel_run
from tests.support.runs import advance_due, command, job, runs


async def test_its_own_groups_close_when_no_step_needs_them(database: str) -> None:
    steps = {
        "a": command("a", group="one"),
        "b": command("b", group="two", after="a"),
        "s": {"named_task": "n/t@1", "group": "two", "after": "b"},
    }
    groups = {"one": {"tags": ["x"]}, "two": {"max_hosts": 1, "setup": {"command": ["prep"]}}}
    async with runs(database) as r:
        run = await r.start(job(steps, groups=groups), own=True)

        async def states() -> dict[str, str]:
            rows = await r.w.rows(
                "SELECT n.name, n.kind, v.state FROM run_groups AS n"
                " JOIN task_groups AS g ON g.uuid = n.task_group JOIN group_live AS v ON v.group_id = g.id"
            )
            return {f"{row['name']} {row['kind']}": row["state"] for row in rows}

        assert await states() == {
            "one managed": "open",
            "two managed": "open",
            "two service": "open",
        }
        assert {kind for kind, _ in await r.w.pokes()} >= {"run", "task_group"}
        view = await r.view(run)
        host = await r.w.leased_host(view.steps[0].task_group_id, tags=["x"])  # type: ignore[arg-type]
        await host.finish((await host.claim()).tasks)
        await advance_due(r.w.store)
        assert await states() == {
            "one managed": "closed",
            "two managed": "open",
            "two service": "open",
        }
        await cancel_run(r.w.store, run, CancelRun())
        assert set((await states()).values()) == {"closed"}


async def test_a_closed_standing_group_fails_the_step(database: str) -> None:
    steps = {"a": command("a"), "b": command("b", group="two", after="a")}
    async with runs(database, "one", "two") as r:
        run = await r.start(job(steps))
        two = await r.w.value("SELECT uuid FROM task_groups WHERE name = 'two'")
        await r.w.close(two)
        await r.finish()
        step = (await r.view(run)).steps[1]
        assert (step.state, str(step.reason).split(":")[0]) == ("failed", "task_group_closed")
        assert (await r.view(run)).state == "failed"
