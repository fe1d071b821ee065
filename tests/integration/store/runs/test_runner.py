"""An API process carries on runs when it is notified."""

from mitosis.store.runs.runner import carrying_on_runs
from tests.support.runs import command, job, runs


async def test_a_notification_carries_on_and_a_lost_one_is_made_up_for(database: str) -> None:
    async with runs(database, "one", "two") as r, carrying_on_runs(r.w.store):
        other = await r.start(job({"c": command("c", group="two")}))
        run = await r.start(job({"a": command("a"), "b": command("b", after="a")}))
        host = r.hosts["one"]
        await r.end(host, (await host.claim(wait=20)).tasks, lambda words, attempt: None)
        tasks = (await host.claim(wait=20)).tasks
        assert len(tasks) == 1
        ended = r.wait(run, wait_seconds=20, until="ended")
        await r.end(host, tasks, lambda words, attempt: None)
        assert (await ended).state == "success"
        two = r.hosts["two"]
        await r.end(two, (await two.claim(wait=20)).tasks, lambda words, attempt: None)
        assert (await r.wait(other, wait_seconds=20, until="ended")).state == "success"
