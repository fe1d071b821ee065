"""Loses wakeups at random on the whole product, beside verbs and losses of hosts: ``make campaign-wake``.

Every row of the outbox (each poke) and every notification is dropped with a probability that each step
changes, up to all of them. Claimable work beside a usable host may wait for 10 s (protocol P7): a host
without a lease that could serve a waiting group, or one with a lease that holds no task of a group with some.
``ARGS="--seed N --steps N"``: the same again.
"""

import argparse
import asyncio
import contextlib
import os
import random
import secrets
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import LiteralString
from uuid import UUID

from mitosis.contracts.errors import Conflict
from mitosis.contracts.lifecycle import TaskGroupState
from mitosis.contracts.task import TaskSubmission
from mitosis.embedded.stack import EmbeddedStack
from mitosis.settings import Settings
from mitosis.store.pg.migrate import migrate
from mitosis.store.pg.wake import Topic
from tests.chaos.mixed.database import IDLE
from tests.support.fleet import Fleet, FleetHost, fleet
from tests.support.waiting import wait_until_async

STEPS = 150
HOSTS = 3
LOST_AFTER = timedelta(seconds=10)
LIMIT_SECONDS = 10.0
LOADED_SECONDS = 6.0
"""More than the limit, on a machine under load."""
LOOK_SECONDS = 0.5
SETTLED_SECONDS = 240.0
CHANCES = (0.0, 0.5, 0.9, 1.0)
STARVED: LiteralString = """
SELECT l.group_id, m.uuid::text FROM leases AS l
  JOIN managers AS m ON m.id = l.manager_id
  JOIN manager_live AS c ON c.manager_id = m.id
  JOIN group_live AS v ON v.group_id = l.group_id
  JOIN environments AS e ON e.manager_id = m.id AND e.group_id = l.group_id AND e.state = 'ready'
 WHERE l.state = 'active' AND v.state IN ('open', 'closed') AND NOT v.discarding
   AND c.last_contact_at > now() - interval '5 s'
   AND NOT EXISTS (SELECT FROM open_task AS o WHERE o.group_id = l.group_id AND o.epoch = l.epoch)
   AND EXISTS (SELECT FROM open_task AS o WHERE o.group_id = l.group_id AND o.state = 0)"""
DROPPING: tuple[LiteralString, ...] = (
    "CREATE TABLE dropping (chance double precision NOT NULL)",
    "INSERT INTO dropping VALUES (0)",
    "CREATE FUNCTION lose() RETURNS trigger LANGUAGE plpgsql AS"
    " 'BEGIN IF random() < (SELECT chance FROM dropping) THEN RETURN NULL; END IF; RETURN NEW; END'",
    "CREATE TRIGGER lose BEFORE INSERT ON outbox FOR EACH ROW EXECUTE FUNCTION lose()",
)

Pair = tuple[int, str]


@dataclass
class Campaign:
    it: Fleet
    dice: random.Random
    groups: list[UUID] = field(default_factory=list)
    submitted: int = 0
    chance: float = 0.0
    longest: float = 0.0
    late: list[str] = field(default_factory=list)
    _since: dict[Pair, float] = field(default_factory=dict)
    _away: set[asyncio.Task[None]] = field(default_factory=set)

    async def step(self, number: int) -> None:
        """Change the chance of a loss, do one thing, and let some time pass."""
        await self._lose(self.dice.choice(CHANCES))
        act = self.dice.choice(
            (self.create, self.create, self.submit, self.submit, self.verb, self.cut, self.kill)
        )
        print(f"{number}: {act.__name__}, {self.chance:.0%} of the wakeups are lost", flush=True)
        await act()
        until = time.monotonic() + self.dice.choice((0.0, 0.5, 3.0))
        while time.monotonic() < until:
            await self.look()

    async def _lose(self, chance: float) -> None:
        self.chance = chance
        await self.it.rows("UPDATE dropping SET chance = %s", chance)

    # --- what happens ---------------------------------------------------------------------------

    def _tasks(self) -> list[TaskSubmission]:
        seconds = self.dice.choice((0.01, 0.2, 1.0))
        task = TaskSubmission(handler="time:sleep", arguments=[seconds])
        count = self.dice.choice((1, 3, 12))
        self.submitted += count
        return [task] * count

    async def create(self) -> None:
        some = self.dice.choice((1, 2, None))
        self.groups.append(await self.it.group(*self._tasks(), workers=2, max_managers=some))

    async def submit(self) -> None:
        """Into a group that may have waited for a while, or be closed."""
        if self.groups:
            with contextlib.suppress(Conflict):
                tasks = self._tasks()
                self.submitted -= len(tasks)
                await self.it.client.submit(self.dice.choice(self.groups), tasks)
                self.submitted += len(tasks)

    async def verb(self) -> None:
        if not self.groups:
            return
        group, client = self.dice.choice(self.groups), self.it.client
        verbs: tuple[Callable[[UUID], Awaitable[object]], ...] = (
            client.close_group,
            client.close_group,
            client.reopen,
            client.cancel,
        )
        with contextlib.suppress(Conflict):
            await self.dice.choice(verbs)(group)

    async def cut(self) -> None:
        host = self.dice.choice(self.it.hosts)
        host.wire.cut()
        self._back(host.wire.mend)

    async def kill(self) -> None:
        host = self.dice.choice(self.it.hosts)
        await host.kill()
        self._back(lambda: self._again(host))

    async def _again(self, host: FleetHost) -> None:
        if host.process is None or host.process.returncode is not None:
            await host.begin()

    def _back(self, deed: Callable[[], Awaitable[None] | None]) -> None:
        """Undo it after some time, shorter or longer than a loss takes."""
        seconds = self.dice.choice((1.0, 6.0, 14.0))

        async def later() -> None:
            await asyncio.sleep(seconds)
            if (done := deed()) is not None:
                await done

        task = asyncio.ensure_future(later())
        self._away.add(task)
        task.add_done_callback(self._away.discard)

    # --- what must not be -----------------------------------------------------------------------

    async def look(self) -> None:
        """Find the pairs of waiting work and usable host, and how long each has been there."""
        rows = [*await self.it.rows(IDLE), *await self.it.rows(STARVED)]
        now = time.monotonic()
        pairs = {(int(number), str(host)) for number, host in (row.values() for row in rows)}
        self._since = {pair: self._since.get(pair, now) for pair in pairs}
        for pair, since in self._since.items():
            self.longest = max(self.longest, now - since)
            if now - since > LIMIT_SECONDS + LOADED_SECONDS:
                self.late.append(f"group {pair[0]} waits beside {pair[1]} for {now - since:.0f} s")
        await asyncio.sleep(LOOK_SECONDS)

    async def settle(self) -> None:
        """Nothing is lost any more: every group ends; those that would look in minutes only are poked."""
        if self._away:
            await asyncio.wait(list(self._away))
        await self._lose(0.0)
        for host in self.it.hosts:
            await self._again(host)
        for group in self.groups:
            with contextlib.suppress(Conflict):
                await self.it.client.close_group(group)
        await self.it.rows(
            "INSERT INTO outbox (kind, subject) SELECT 'task_group', g.uuid FROM task_groups AS g"
            " JOIN group_live AS v ON v.group_id = g.id WHERE v.settled_at IS NULL"
        )

        async def settled() -> bool:
            await self.look()
            return all([(await self.it.client.group(group)).settled for group in self.groups])

        await wait_until_async(settled, SETTLED_SECONDS)

    async def check(self) -> None:
        found = 0
        for group in self.groups:
            info = await self.it.client.group(group)
            found += info.tasks_completed + info.tasks_cancelled
            if info.state is TaskGroupState.COMPLETE:
                assert info.tasks_succeeded == info.tasks_total, info
        assert found == self.submitted, (found, self.submitted)
        assert not self.late, "\n".join(self.late[:20])


@asynccontextmanager
async def losing(campaign: Campaign) -> AsyncIterator[None]:
    """The API process wakes a waiting claim only now and then, whoever notified it."""
    wake = campaign.it.api.app_state.store.wake
    assert wake is not None
    woken = wake.wake
    dice = random.Random(0)

    def maybe(group_number: int, topic: Topic) -> None:
        if dice.random() >= campaign.chance:
            woken(group_number, topic)

    wake.wake = maybe  # type: ignore[method-assign]
    try:
        yield
    finally:
        wake.wake = woken  # type: ignore[method-assign]


async def main(seed: int, steps: int) -> None:
    print(f'this campaign again: make campaign-wake ARGS="--seed {seed} --steps {steps}"')
    with tempfile.TemporaryDirectory(prefix="mitosis-campaign-") as name:
        os.chmod(name, 0o711)  # noqa: PTH101, S103 - PostgreSQL may run as another user
        async with EmbeddedStack(Settings(data_dir=Path(name, "data"))) as stack:
            await asyncio.to_thread(migrate, stack.database_url)
            where = (stack.database_url, stack.temporal_address, Path(name))
            async with fleet(*where, host_lost_after=LOST_AFTER) as it:
                campaign = Campaign(it, random.Random(seed))
                for statement in DROPPING:
                    await it.rows(statement)
                for _ in range(HOSTS):
                    await it.host()
                async with losing(campaign):
                    for number in range(steps):
                        await campaign.step(number)
                    await campaign.settle()
                await campaign.check()
    print(f"{len(campaign.groups)} groups, {campaign.submitted} tasks;", end=" ")
    print(f"the longest wait beside a usable host was {campaign.longest:.1f} s")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.wake")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1_000_000))
    parser.add_argument("--steps", type=int, default=STEPS)
    options = parser.parse_args()
    asyncio.run(main(options.seed, options.steps))
