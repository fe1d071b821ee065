"""A run that cannot be carried on is ended without its definition, with its tasks and task groups."""

from mitosis.store.runs.turns import give_up
from tests.support.runs import command, job, runs


async def test_it_ends_with_its_tasks_and_groups(database: str) -> None:
    async with runs(database) as r:
        run = await r.start(
            job({"a": command("a", count=3), "b": command("b", after="a")}), own=True
        )
        number = await r.w.value("SELECT id FROM runs")
        for _ in range(2):  # again changes nothing
            await give_up(r.w.store, number, "no\0 way")
            view = await r.view(run)
            assert (view.state, view.reason) == ("failed", "no\N{SYMBOL FOR NULL} way")
            assert (view.tasks_open, view.tasks_cancelled) == (0, 3)
            assert await r.states(run) == {"a": "failed", "b": "cancelled"}
        assert await r.w.value("SELECT count(*) FROM open_task") == 0
        state = (
            "SELECT v.state FROM group_live AS v JOIN task_groups AS g ON g.id = v.group_id"
            " WHERE g.name LIKE 'run-%%'"
        )
        assert await r.w.value(state) == "closed"
