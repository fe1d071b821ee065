"""Who is charged for a lost host, agent or zygote (protocol P5): random lives, compared with the rule.

The reference beside the store is the rule in its plainest form. Killers end their agent or their zygote when
they run, innocents never do; stops in order, cut networks and lost journals come at any time.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from hypothesis import Phase, given, note, settings
from hypothesis import strategies as st

from mitosis.contracts.agent_http import AttemptList, HelloAnswer
from mitosis.contracts.attempt import AttemptKey
from mitosis.contracts.control import ReleaseReason, ReleaseRequest
from mitosis.contracts.outcome import LOST_ALONE, LOST_LIMIT
from mitosis.contracts.wire import ClaimedTask
from mitosis.store.leases.scheduler import assign_round
from mitosis.store.managers.hello import say_goodbye
from mitosis.store.managers.release import release_lease
from mitosis.store.managers.views import observe_manager
from tests.support.campaigns import Host, World, failed, world
from tests.support.databases import DatabasePool
from tests.support.examples import examples

KILLERS, INNOCENTS, PLACES = 2, 3, 2
MOST_DEATHS = LOST_LIMIT + 1
"""Of a killer: one loss may pass without its start being known."""


@dataclass
class Row:
    """What PostgreSQL must know of a task."""

    task_id: int
    killer: bool
    lost: int = 0
    announce: bool = False
    started: bool = False
    claim: tuple["Agent", ClaimedTask] | None = None
    done: bool = False
    poison: bool = False
    deaths: int = 0

    @property
    def open(self) -> bool:
        return not (self.done or self.poison)


@dataclass
class Agent:
    """The agent of one host: it keeps the rules of starting."""

    host: Host
    runs: list[Row] = field(default_factory=list)
    held: list[Row] = field(default_factory=list)
    begun: dict[int, int] = field(default_factory=dict)
    planned: int | None = None
    up: bool = True

    def may_start(self, row: Row) -> bool:
        alone = any(other.lost >= LOST_ALONE for other in self.runs)
        if row.lost >= LOST_ALONE:
            return not self.runs
        return not alone and len(self.runs) < PLACES


class Story:
    """One random life of a group, and the rule beside it."""

    def __init__(self, w: World, group: UUID, agents: list[Agent], rows: list[Row]) -> None:
        self.w, self.group, self.agents, self.rows = w, group, agents, rows

    async def claim(self, agent: Agent) -> None:
        if not agent.up or not agent.host.epoch:
            return
        for task in (await agent.host.claim(1)).tasks:
            row = next(row for row in self.rows if row.task_id == task.task_id)
            assert row.open
            assert row.claim is None
            assert task.alone == (row.lost >= LOST_ALONE), row
            assert task.announce == row.announce, row
            row.claim = (agent, task)
            agent.held.append(row)

    async def start(self, agent: Agent) -> None:
        row = next((row for row in agent.held if agent.may_start(row)), None)
        if row is None or not agent.up or row.claim is None:
            return
        if row.announce:
            answer = await agent.host.renew(announced=[row.claim[1]])
            assert answer.recorded == [row.task_id]
            row.started = True
        agent.held.remove(row)
        agent.runs.append(row)
        agent.begun[row.task_id] = row.claim[1].attempt

    async def renewal(self, agent: Agent) -> None:
        if agent.up and agent.runs:
            await agent.host.renew(started=[row.claim[1] for row in agent.runs if row.claim])
            for row in agent.runs:
                row.started = True

    async def end(self, agent: Agent) -> None:
        row = next((row for row in agent.runs if not row.killer), None)
        if row is not None and agent.up and row.claim is not None:
            await agent.host.finish([row.claim[1]])
            agent.runs.remove(row)
            del agent.begun[row.task_id]
            row.done, row.claim = True, None

    async def kill(self, agent: Agent, *, journal: bool) -> None:
        killer = next((row for row in agent.runs if row.killer), None)
        if killer is None or not agent.up:
            return
        killer.deaths += 1
        self.die(agent)
        if not journal:
            agent.begun = {}

    async def kill_zygote(self, agent: Agent) -> None:
        """End all that runs on the host; the agent reports it. Then time passes: pauses come to their end."""
        killer = next((row for row in agent.runs if row.killer), None)
        if killer is None or not agent.up:
            return
        killer.deaths += 1
        lost = [row for row in agent.runs if row.claim]
        await agent.host.report(
            *(failed(row.claim[1], "workers_lost") for row in lost if row.claim)
        )
        await self.w.rows("UPDATE open_task SET state = 0, not_before = NULL WHERE state = 4")
        for row in lost:
            row.lost += 1
            row.poison = row.lost == LOST_LIMIT
            row.started, row.claim = False, None
        agent.runs = []

    async def kill_its_way(self, agent: Agent) -> None:
        """The first killer kills zygotes, the others agents."""
        if next((row for row in agent.runs if row.killer), None) is self.rows[0]:
            await self.kill_zygote(agent)
        else:
            await self.kill(agent, journal=True)

    async def stop(self, agent: Agent, *, goodbye: bool) -> None:
        if not agent.up:
            return
        agent.planned = agent.host.incarnation
        self.die(agent)
        if goodbye:
            await say_goodbye(self.w.store, agent.host.manager_id, agent.host.epoch or None)
            self.ends(agent, planned=True)

    async def silence(self, agent: Agent) -> None:
        """Nothing comes from a dead agent until its host counts as lost."""
        if agent.up or not agent.host.epoch or agent.planned:
            return
        await self.w.rows(
            "UPDATE leases SET alive_until = now() WHERE epoch = %s AND state <> 'ended'",
            agent.host.epoch,
        )
        request = ReleaseRequest(
            manager_id=agent.host.manager_id, epoch=agent.host.epoch, reason=ReleaseReason.LOST
        )
        await release_lease(self.w.store, request)
        self.ends(agent, planned=False, begun={})

    async def return_(self, agent: Agent, *, again: bool) -> None:
        """Start the agent; with ``again`` the first answer to its hello is lost and it dies."""
        if agent.up:
            return
        begun = AttemptList.of(AttemptKey(*key) for key in agent.begun.items())
        answer = await self.hello(agent, begun)
        if again:
            answer = await self.hello(agent, begun)
        agent.up, agent.planned, agent.begun = True, None, {}
        for group in answer.owed:
            await agent.host.clean(group)
        if answer.lease is None:
            agent.host.epoch = 0
            await self.take(agent)

    async def hello(self, agent: Agent, begun: AttemptList) -> HelloAnswer:
        answer: HelloAnswer = await agent.host.hello(planned_stop=agent.planned, begun=begun)
        self.ends(agent, planned=agent.planned == agent.host.incarnation - 1)
        return answer

    async def take(self, agent: Agent) -> None:
        await assign_round(self.w.store)
        view = await observe_manager(self.w.store, agent.host.manager_id)
        if view.lease is not None:
            await agent.host.take(self.group, prepare=False)
            if all(environment.state != "ready" for environment in view.environments):
                await agent.host.prepare(self.group)

    def die(self, agent: Agent) -> None:
        agent.up, agent.runs, agent.held = False, [], []

    def ends(self, agent: Agent, *, planned: bool, begun: dict[int, int] | None = None) -> None:
        """Apply the rule: the epoch of the agent ends."""
        known = agent.begun if begun is None else begun
        for row in self.rows:
            if row.claim is None or row.claim[0] is not agent:
                continue
            attempt = row.claim[1].attempt
            if not planned and (row.started or known.get(row.task_id) == attempt):
                row.lost += 1
                row.poison = row.lost == LOST_LIMIT
            elif not planned:
                row.announce = True
            row.started, row.claim = False, None

    async def compare(self) -> None:
        found = await self.w.rows("SELECT id, lost_count, announce, state FROM open_task")
        wanted = [
            {
                "id": r.task_id,
                "lost_count": r.lost,
                "announce": r.announce,
                "state": int(bool(r.claim)),
            }
            for r in self.rows
            if r.open
        ]
        assert sorted(found, key=_id) == sorted(wanted, key=_id)
        poison = await self.w.rows(
            "SELECT task_id AS id FROM task_result"
            " WHERE state = 'failed' AND kind IN ('host_lost', 'workers_lost')"
        )
        assert {row["id"] for row in poison} == {row.task_id for row in self.rows if row.poison}
        for row in self.rows:
            assert row.killer or not row.poison, "an innocent task is never poison"
            assert row.deaths <= MOST_DEATHS, "a killer is bounded"


def _id(row: dict[str, Any]) -> int:
    return int(row["id"])


STEPS: dict[str, Callable[[Story, Agent], Any]] = {
    "claim": Story.claim,
    "start": Story.start,
    "renewal": Story.renewal,
    "end": Story.end,
    "kill": lambda story, agent: story.kill(agent, journal=True),
    "kill the zygote": Story.kill_zygote,
    "kill its way": Story.kill_its_way,
    "kill the host": lambda story, agent: story.kill(agent, journal=False),
    "stop": lambda story, agent: story.stop(agent, goodbye=True),
    "stop unheard": lambda story, agent: story.stop(agent, goodbye=False),
    "silence": Story.silence,
    "return": lambda story, agent: story.return_(agent, again=False),
    "return twice": lambda story, agent: story.return_(agent, again=True),
}
LIFE = ("return", "claim", "claim", "start", "start", "kill its way", "end", "return")
"""What brings every group to its end."""
steps = st.lists(st.tuples(st.sampled_from(sorted(STEPS)), st.integers(0, 1)), max_size=15)


@settings(max_examples=examples(3), phases=[Phase.generate])
@given(chosen=steps)
def test_losses_are_charged_by_the_rule(
    databases: DatabasePool, chosen: list[tuple[str, int]]
) -> None:
    """Killers end as poison after at most four deaths, innocents end well, stops in order are free."""
    with databases.database() as url:
        asyncio.run(_life(url, chosen))


async def _life(database: str, chosen: list[tuple[str, int]]) -> None:
    async with world(database) as w:
        group = await w.group()
        ids = (await w.submit(group, KILLERS + INNOCENTS)).task_ids
        rows = [Row(task_id, killer=i < KILLERS) for i, task_id in enumerate(ids)]
        agents = [Agent(await w.leased_host(group)) for _ in range(2)]
        story = Story(w, group, agents, rows)
        for name, which in chosen:
            note(f"{name} {which}")
            await STEPS[name](story, agents[which])
            await story.compare()
        for _ in range(20):
            for agent in agents:
                for name in LIFE:
                    await STEPS[name](story, agent)
            await story.compare()
            if not any(row.open for row in rows):
                break
        assert [row.poison for row in rows] == [row.killer for row in rows]
        assert all(row.deaths for row in rows if row.killer)
        await w.check()


async def test_five_rolling_restarts_charge_nothing(database: str) -> None:
    """Whether the goodbye of an agent arrives, or only its next hello says that it had stopped in order."""
    async with world(database) as w:
        group = await w.group()
        ids = (await w.submit(group, 1)).task_ids
        agent = Agent(await w.leased_host(group))
        story = Story(w, group, [agent], [Row(ids[0], killer=False)])
        for number in range(5):
            for step in (Story.claim, Story.start, Story.renewal):
                await step(story, agent)
            assert story.rows[0].started
            await story.stop(agent, goodbye=number % 2 == 0)
            await story.return_(agent, again=number == 3)
            await story.compare()
        assert story.rows[0].lost == 0
