"""Simulated agents and many task groups under random verbs, on the real stack: ``make stress``.

API, control worker, Temporal and PostgreSQL are real; the agents are simulated and speak HTTP and Temporal. A
watch looks all the time for hosts that are free beside work that they may do. Calls are repeated as the SDK
and the real agent repeat them, since 429 and 503 are promised to pass. In the end every task group must
settle, and nothing may be lost, run twice or be left.
``ARGS="--seed N --agents N --groups N --minutes N"``: the same again.
"""

import argparse
import asyncio
import contextlib
import math
import os
import random
import secrets
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, LiteralString, TypeVar
from uuid import UUID

from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter

from manager_agent.agent_api import AgentApi
from mitosis.client.creating import Planned, created
from mitosis.client.repeating import repeating
from mitosis.contracts.errors import Conflict, InvalidRequest, NotFound
from mitosis.contracts.http import RegisterManager, TaskGroupInfo, TaskGroupSpec, TaskGroupUpdate
from mitosis.contracts.task import TaskSubmission
from mitosis.embedded.stack import EmbeddedStack
from mitosis.settings import Settings
from mitosis.store.pg.migrate import migrate
from tests.campaigns.stress_watch import Watch
from tests.support.fleet import Fleet, fleet
from tests.support.http_agent import HttpAgent
from tests.support.kept_facts import compare
from tests.support.waiting import wait_until_async
from workflows import options

T = TypeVar("T")
TAGS = ("gpu", "x86", "big")
LOST_AFTER = timedelta(seconds=10)
USERS = 4
"""So many verbs are under way at the same time."""
CONNECTIONS = 20
"""Those of an API and of a control worker, which are one process here."""
REPEATED_FOR = timedelta(minutes=10)
"""So long a call is repeated, as those of a program with a task group."""
SETTLED_SECONDS = 60.0
"""And half of the campaign's own time, where every thread gets a core at once."""
LEFT: tuple[LiteralString, ...] = (
    "SELECT epoch, group_id, state, end_reason FROM leases WHERE state <> 'ended'",
    "SELECT manager_id, group_id, state FROM environments WHERE state <> 'gone'",
    "SELECT group_id, id, state FROM open_task",
    "SELECT group_id, state FROM group_live WHERE settled_at IS NULL",
)
TWICE: LiteralString = "SELECT task_id FROM task_result GROUP BY task_id HAVING count(*) > 1"


@dataclass
class Stress:
    it: Fleet
    dice: random.Random
    most_groups: int
    agents: list[HttpAgent] = field(default_factory=list)
    groups: list[UUID] = field(default_factory=list)
    deleted: set[UUID] = field(default_factory=set)
    submitted: dict[UUID, int] = field(default_factory=dict)
    verbs: Counter[str] = field(default_factory=Counter)
    _away: list[asyncio.Task[None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.watch = Watch(self.it)
        self.it.client.give_up_after = REPEATED_FOR

    async def run(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        watch = asyncio.create_task(self.watch.run())
        pause = min(1.0, seconds / (2 * self.most_groups))
        try:
            async with asyncio.TaskGroup() as users:
                for _ in range(USERS):
                    users.create_task(self._use(until, pause * USERS))
            await self._settle(SETTLED_SECONDS + seconds / 2)
        finally:
            watch.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watch
            print(self.figures(), flush=True)
        await self._check()

    def figures(self) -> str:
        """Return what was done, and how long hosts were free beside work."""
        watch = self.watch
        slowdown = watch.slowdown.since(-math.inf)
        return (
            f"{len(self.groups)} task groups, {sum(self.submitted.values())} tasks;"
            f" verbs: {dict(self.verbs)}\n"
            f"the longest wait beside a free host was {watch.longest:.1f} s of {watch.allowed:.1f} s;"
            f" a second of computing took {slowdown:.1f} s; {watch.missed} looks missed"
        )

    async def _use(self, until: float, pause: float) -> None:
        while time.monotonic() < until:
            act = self.dice.choice(self._verbs())
            self.verbs[act.__name__] += 1
            with contextlib.suppress(Conflict, InvalidRequest, NotFound):
                await act()
            await asyncio.sleep(self.dice.random() * pause)

    async def _repeated(self, call: Callable[[], Awaitable[T]]) -> T:
        """Repeat a call that the SDK leaves to its caller: here each of them may be made again."""
        return await repeating(call, REPEATED_FOR)

    def _verbs(self) -> list[Callable[[], Awaitable[None]]]:
        wanted = self.verbs["create"] < self.most_groups
        if wanted and (len(self.groups) < 3 or self.dice.random() < 0.5):
            return [self.create]
        of_groups = [self.submit, self.submit, self.change, self.members, self.refresh, self.end]
        return [*of_groups, self.drain, self.resume, self.lose, self.plan_like_a_user]

    def _live(self) -> UUID:
        """One of the newest: the older ones have mostly ended."""
        there = [one for one in self.groups if one not in self.deleted]
        if not there:
            raise NotFound("no task group is left")
        return self.dice.choice(there[-40:])

    def _tasks(self) -> list[TaskSubmission]:
        seconds = self.dice.choice((0.01, 0.2, 1.0))
        task = TaskSubmission(handler="time:sleep", arguments=[seconds])
        return [task] * self.dice.choice((1, 3, 12, 40))

    # --- verbs -----------------------------------------------------------------------------------

    async def create(self) -> None:
        dice, named = self.dice, self.dice.random() < 0.2
        some = dice.sample(self.agents, min(3, len(self.agents)))
        spec: dict[str, Any] = {
            "name": f"g{self.verbs['create']}",
            "priority": dice.choice((-10, 0, 0, 10)),
            "max_managers": dice.choice((None, 1, 3)),
            "worker_allocation_plan": {"worker_count": dice.choice((1, 2))},
            "lease_settings": {
                "lease_duration": dice.choice((2, 60)),
                "idle_threshold": dice.choice((0, 3)),
            },
            "cancel_grace_seconds": 1,
        }
        if named:
            spec |= {
                "assignment_method": "user_specified",
                "manager_ids": [a.manager_id for a in some],
            }
        else:
            spec["tags"] = dice.sample(TAGS, dice.choice((0, 0, 1)))
        planned = Planned(TaskGroupSpec.model_validate(spec), is_ours=True)
        info = await created(self.it.client, planned)
        self.groups.append(info.task_group_id)
        await self._submit(info.task_group_id)

    async def submit(self) -> None:
        await self._submit(self._live())

    async def _submit(self, group: UUID) -> None:
        tasks = self._tasks()
        await self.it.client.submit(group, tasks)
        self.submitted[group] = self.submitted.get(group, 0) + len(tasks)

    async def change(self) -> None:
        changes: dict[str, Any] = self.dice.choice(
            (
                {"priority": self.dice.choice((-10, 0, 10))},
                {"max_managers": self.dice.choice((None, 1, 3))},
                {"tags": self.dice.sample(TAGS, 1)},
            )
        )
        group, update = self._live(), TaskGroupUpdate.model_validate(changes)
        await self._repeated(lambda: self.it.client.update_group(group, update))

    async def members(self) -> None:
        client, agent = self.it.client, self.dice.choice(self.agents)
        verb = self.dice.choice((client.add_managers, client.remove_managers))
        await verb(self._live(), [agent.manager_id])

    async def refresh(self) -> None:
        group = self._live()
        await self._repeated(lambda: self.it.client.refresh_managers(group))

    async def end(self) -> None:
        client, group = self.it.client, self._live()
        how = self.dice.choice(
            ("close", "close", "close", "reopen", "cancel", "complete", "delete")
        )
        match how:
            case "close":
                await client.close_group(group)
            case "reopen":
                await client.reopen(group)
            case "cancel":
                await client.cancel(group)
            case "complete":
                await client.complete(group, force=True)
            case "delete":
                with contextlib.suppress(NotFound):  # by a try whose answer was lost
                    await self._repeated(lambda: client.delete_group(group, force=True))
                self.deleted.add(group)

    async def drain(self) -> None:
        if sum(agent.away for agent in self.agents) < len(self.agents) / 4:
            agent = self.dice.choice(self.agents)
            await self.it.client.drain_manager(agent.manager_id, now=self.dice.random() < 0.5)

    async def resume(self) -> None:
        for agent in self.dice.sample(self.agents, len(self.agents) // 4 + 1):
            await self.it.client.resume_manager(agent.manager_id)

    async def plan_like_a_user(self) -> None:
        """Read what people read."""
        await self.it.client.explain(self._live())

    async def lose(self) -> None:
        """Cut a host off, shorter or longer than a loss takes; it comes back as a new process."""
        agent = self.dice.choice(self.agents)
        if agent.away or sum(one.away for one in self.agents) > len(self.agents) / 5:
            return
        agent.cut_off()
        seconds = self.dice.choice((1.0, 5.0, 14.0))

        async def later() -> None:
            await asyncio.sleep(seconds)
            await agent.come_back()

        self._away.append(asyncio.create_task(later()))

    # --- what must not be -------------------------------------------------------------------------

    async def _settle(self, seconds: float) -> None:
        """Every host serves again, every task group may have each of them, and is closed."""
        await asyncio.gather(*self._away)
        client = self.it.client
        for agent in self.agents:
            await client.resume_manager(agent.manager_id)
        await asyncio.gather(*(self._close(self.groups[user::USERS]) for user in range(USERS)))

        async def settled() -> bool:
            rows = await self.it.rows(
                "SELECT count(*) AS n FROM group_live WHERE settled_at IS NULL"
            )
            return bool(rows[0]["n"] == 0)

        within = seconds * self.watch.slowdown.since(-math.inf)
        await wait_until_async(settled, within, interval=0.5)
        await wait_until_async(self._empty, within, interval=0.5)

    async def _close(self, groups: Sequence[UUID]) -> None:
        everyone = [agent.manager_id for agent in self.agents]
        for group in groups:
            with contextlib.suppress(Conflict, NotFound):
                await self.it.client.add_managers(group, everyone)
                await self.it.client.close_group(group)

    async def _empty(self) -> bool:
        return not any([await self.it.rows(statement) for statement in LEFT])

    async def _check(self) -> None:
        assert not await self.it.rows(TWICE)
        assert self.groups, "every create was refused"
        assert self.watch.missed < self.watch.looks / 4, "PostgreSQL was seldom reached to look"
        for group in self.groups:
            if group not in self.deleted:
                self._check_group(await self.it.client.group(group))
        committed = Counter(task for agent in self.agents for task in agent.committed)
        assert max(committed.values(), default=0) <= 1, "two reports of one task were accepted"
        excused = {task for agent in self.agents for task in agent.excused}
        begun = Counter(task for agent in self.agents for task in agent.begun)
        twice = [task for task, count in begun.items() if count > 1 and task not in excused]
        assert not twice, f"ran twice without a loss of their host: {twice[:20]}"
        assert not self.watch.late, "\n".join([*self.watch.late.values()][:20])
        await compare(self.it.api.app_state.store, kept=None)

    def _check_group(self, info: TaskGroupInfo) -> None:
        expected = self.submitted.get(info.task_group_id, 0)
        assert info.tasks_total == expected, (info.name, info.tasks_total, expected)
        assert info.tasks_succeeded + info.tasks_cancelled == expected, info
        if str(info.result) == "success":
            assert info.tasks_succeeded == expected, info


async def stress(it: Fleet, seed: int, agents: int, groups: int, seconds: float) -> Stress:
    """Run a campaign on this fleet and check what it leaves."""
    campaign = Stress(it, random.Random(seed), groups)
    async with AsyncExitStack() as exits:
        temporal = await Client.connect(
            it.temporal_address,
            namespace=it.api.app_state.temporal_namespace,
            data_converter=pydantic_data_converter,
        )
        for number in range(agents):
            tags = frozenset(tag for place, tag in enumerate(TAGS) if number >> place & 1)
            spec = RegisterManager(name=f"h{number}", tags=tags)
            registered = await it.client.register_manager(spec)
            api = AgentApi(it.api.url, registered.token)
            agent = HttpAgent(api, registered.manager_id, f"h{number}")
            await exits.enter_async_context(agent.running(temporal))
            campaign.agents.append(agent)
        await campaign.run(seconds)
    return campaign


async def main(seed: int, agents: int, groups: int, minutes: float) -> None:
    given = f"--seed {seed} --agents {agents} --groups {groups} --minutes {minutes}"
    print(f'this campaign again: make stress ARGS="{given}"', flush=True)
    with tempfile.TemporaryDirectory(prefix="mitosis-campaign-") as name:
        os.chmod(name, 0o711)  # noqa: PTH101, S103 - PostgreSQL may run as another user
        async with EmbeddedStack(Settings(data_dir=Path(name, "data"))) as stack:
            await asyncio.to_thread(migrate, stack.database_url)
            where = (stack.database_url, stack.temporal_address, Path(name))
            async with fleet(
                *where,
                host_lost_after=LOST_AFTER,
                heartbeat_within=options.HOST_HEARTBEAT_WITHIN,
                connections=CONNECTIONS,
            ) as it:
                await stress(it, seed, agents, groups, minutes * 60)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.stress")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1_000_000))
    parser.add_argument("--agents", type=int, default=50)
    parser.add_argument("--groups", type=int, default=200)
    parser.add_argument("--minutes", type=float, default=10.0)
    given = parser.parse_args()
    asyncio.run(main(given.seed, given.agents, given.groups, given.minutes))
