"""Progress and checkpoints: shown with the attempt, given to the next one, fenced by the open row."""

import asyncio

import pytest

from mitosis.contracts.errors import Superseded, TooLarge
from mitosis.contracts.ids import parse_task_uuid
from mitosis.contracts.task import RetryPolicy
from mitosis.contracts.wire import Outcome
from mitosis.store.tasks.views import read_task
from tests.support.campaigns import until_blocked, world
from tests.support.waiting import wait_until_async
from tests.support.worker_services import healthy, service_group, submit_named


@pytest.mark.spec("S003-27")
async def test_progress_is_shown_and_what_is_left_out_stays(database: str) -> None:
    async with world(database) as w:
        service = await healthy(w)
        await service_group(w, count=1)
        (one,) = await service.claim()
        assert one.checkpoint is None
        assert (await read_task(w.store, one.task_id)).progress is None
        assert await service.says(one, fraction=0.25, stage="copy", message="a") == "recorded"
        assert await service.says(one, fraction=0.5, checkpoint={"at": [7]}) == "recorded"
        shown = (await read_task(w.store, one.task_id)).progress
        assert shown is not None
        assert (shown.fraction, shown.stage, shown.message) == (0.5, "copy", "a")
        assert shown.checkpoint == {"at": [7]}
        await service.report(one)
        assert await service.says(one, fraction=0.75) == "superseded"
        await w.check()


async def test_the_next_attempt_gets_the_last_checkpoint_wherever_it_runs(database: str) -> None:
    async with world(database) as w:
        first, second = await healthy(w, "one"), await healthy(w, "two")
        group = await service_group(w)
        await submit_named(w, group, retry=RetryPolicy(max_attempts=9))
        (one,) = await first.claim()
        for at in (1, 2):
            assert await first.says(one, checkpoint={"at": at}) == "recorded"
        await first.report(one, outcome=Outcome.FAILED, kind="handler_error")
        await wait_until_async(second.claim, interval=0.02)
        (again,) = second.held.values()
        assert (again.attempt, again.checkpoint) == (2, {"at": 2})
        # of an attempt without one the earlier stays
        await second.goodbye()
        (third,) = await first.claim()
        assert (third.attempt, third.checkpoint) == (3, {"at": 2})
        assert await second.w.value("SELECT count(*) FROM service_claims") == 3


async def test_an_attempt_that_another_holds_stores_nothing(database: str) -> None:
    async with world(database) as w:
        first, second = await healthy(w, "one"), await healthy(w, "two")
        await service_group(w, count=1)
        (one,) = await first.claim()
        assert await second.says(one, checkpoint=1) == "superseded"
        again = await healthy(w, "one")  # a later process: what the first held is ready again
        with pytest.raises(Superseded):
            await first.says(one, checkpoint=2)
        assert await again.says(one, checkpoint=3) == "superseded"
        (two,) = await second.claim()
        assert (two.attempt, two.checkpoint) == (2, None)


async def test_a_service_says_nothing_about_attempts_of_another(database: str) -> None:
    async with world(database) as w:
        first, second = await healthy(w, "one"), await healthy(w, "two")
        await service_group(w, count=2)
        (one,), (two,) = await first.claim(1), await second.claim(1)
        assert await second.says(one, checkpoint=1) == "superseded"
        assert await second.says(two, checkpoint=2) == "recorded"
        assert (await read_task(w.store, one.task_id)).progress is None


async def test_a_checkpoint_that_is_acknowledged_is_known_to_the_next_claim(database: str) -> None:
    """One that comes while its attempt is taken away is either in time or refused, never both."""
    async with world(database) as w:
        first, second = await healthy(w, "one"), await healthy(w, "two")
        await service_group(w, count=1)
        (one,) = await first.claim()
        async with w.database.transaction() as held:
            _, task = parse_task_uuid(one.task_id)
            await held.execute("SELECT FROM open_task WHERE id = %s FOR UPDATE", [task])
            saying = asyncio.create_task(first.says(one, checkpoint=1))
            await until_blocked(w)
            await held.execute(
                "UPDATE open_task SET state = 0, epoch = NULL, claim_seq = NULL WHERE id = %s",
                [task],
            )
        assert await saying == "superseded"
        (two,) = await second.claim()
        assert two.checkpoint is None


async def test_a_checkpoint_has_a_limit(database: str) -> None:
    async with world(database) as w:
        service = await healthy(w)
        await service_group(w, count=1)
        (one,) = await service.claim()
        assert await service.says(one, checkpoint="a" * 65_534) == "recorded"
        with pytest.raises(TooLarge) as error:
            await service.says(one, checkpoint="a" * 65_535)
        assert error.value.facts["field"] == "progress[0].checkpoint"
