"""Runs as the API shows them."""

from tests.support.runs import command, job, runs


async def test_a_wait_ends_with_the_next_revision(database: str) -> None:
    async with runs(database) as r:
        run = await r.start(job({"a": command("a")}))
        before = await r.view(run)
        assert (await r.wait(run, wait_seconds=0.05)).revision == before.revision
        await r.work()
        after = await r.wait(run, wait_seconds=20, after_revision=before.revision)
        assert after.revision > before.revision
