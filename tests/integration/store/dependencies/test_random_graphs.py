"""Random graphs of tasks under random ends, retries, cancels and resolving: the rules of protocol P14 hold.

No task is claimed before all its parents have succeeded, every task ends, one ends without a start exactly
if a parent did not succeed or a user cancelled it, and the counters are those of the rows.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID, uuid4

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mitosis.contracts.task import RetryPolicy, TaskSubmission
from mitosis.contracts.task_cancel import CancelTasks
from mitosis.contracts.wire import ClaimedTask
from mitosis.store.dependencies.resolve import resolve_all, resolve_some
from mitosis.store.store import Store, StoreOptions
from mitosis.store.tasks.cancel import cancel_tasks
from mitosis.store.users.accounts import create_user
from tests.support.campaigns import Host, World, failed, succeeded
from tests.support.examples import examples

MOST = 12
ACTIONS = ("claim", "report", "return", "resolve", "resolve some", "cancel", "submit", "both")


@dataclass(frozen=True)
class Node:
    """One task of a graph."""

    group: int
    parents: tuple[int, ...]
    failures: int
    """So many of its attempts fail."""
    attempts: int


@st.composite
def graphs(draw: st.DrawFn) -> list[Node]:
    nodes: list[Node] = []
    for number in range(draw(st.integers(1, MOST))):
        earlier = st.sets(st.integers(0, number - 1), max_size=4) if number else st.just(set[int]())
        nodes.append(
            Node(
                group=draw(st.integers(0, 1)),
                parents=tuple(sorted(draw(earlier))),
                failures=draw(st.sampled_from((0, 0, 0, 1, 2))),
                attempts=draw(st.integers(1, 2)),
            )
        )
    return nodes


ACTS = st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, MOST - 1)), max_size=40)


class Campaign:
    """Carries out a graph in two task groups with a host each."""

    def __init__(self, w: World, nodes: Sequence[Node]) -> None:
        self.w, self.nodes = w, nodes
        self.groups: list[UUID] = []
        self.hosts: list[Host] = []
        self.ids: list[int] = []
        self.cancelled: set[int] = set()
        self.reported: dict[int, int] = {}

    async def begin(self) -> None:
        for _ in range(2):
            name = f"g{uuid4().hex}"
            group = await self.w.group(name, tags=[name])  # no other host may be blamed
            await self.w.submit(group)
            host = await self.w.leased_host(group, tags=[name])
            await host.finish((await host.claim()).tasks)
            host.held.clear()
            self.groups.append(group)
            self.hosts.append(host)

    async def submit(self) -> None:
        """Submit the next tasks that are in one group, at most three."""
        first = len(self.ids)
        batch = []
        for node in self.nodes[first : first + 3]:
            if node.group != self.nodes[first].group:
                break
            parents = [
                [0, parent - first] if parent >= first else self.ids[parent]
                for parent in node.parents
            ]
            retry = RetryPolicy(max_attempts=node.attempts)
            batch.append(TaskSubmission(command=["x"], depends_on=parents, retry=retry))
        if batch:
            group = self.groups[self.nodes[first].group]
            self.ids += (await self.w.submit_tasks(group, batch)).task_ids

    async def act(self, action: str, which: int) -> None:
        host = self.hosts[which % 2]
        held = list(host.held.values())
        if action == "submit":
            await self.submit()
        elif action == "claim":
            await self.claim(host, 1 + which % 3)
        elif action == "report":
            await self.report(host, held[: 1 + which % 3])
        elif action == "return" and held:
            await host.renew(returned=held[:1])
            host.held.pop(held[0].task_id)
        elif action == "cancel" and which < len(self.ids):
            await self.cancel(which)
        else:
            await self.resolve(action, which)

    async def resolve(self, action: str, which: int) -> None:
        host = self.hosts[which % 2]
        if action == "both":
            held = list(host.held.values())
            await asyncio.gather(self.report(host, held), resolve_all(self.w.store))
        elif action == "resolve":
            await resolve_all(self.w.store)
        elif action == "resolve some":
            await self.resolve_some(self.groups[which % 2], 1 + which % 4)

    async def claim(self, host: Host, most: int) -> None:
        for task in (await host.claim(most)).tasks:
            node = self.nodes[self.ids.index(task.task_id)]
            ids = [self.ids[parent] for parent in node.parents]
            good = (
                "SELECT count(*) FROM task_result WHERE state = 'succeeded' AND task_id = ANY(%s)"
            )
            assert await self.w.value(good, ids) == len(ids), "claimed before its parents"

    async def report(self, host: Host, tasks: Sequence[ClaimedTask]) -> None:
        reports = []
        for task in tasks:
            before = self.reported.get(task.task_id, 0)
            self.reported[task.task_id] = before + 1
            bad = before < self.nodes[self.ids.index(task.task_id)].failures
            reports.append(failed(task) if bad else succeeded(task))
            host.held.pop(task.task_id)
        if reports:
            await host.report(*reports)

    async def resolve_some(self, group: UUID, most: int) -> None:
        number = await self.w.value("SELECT id FROM task_groups WHERE uuid = %s", group)
        lock = "SELECT FROM group_live WHERE group_id = %s FOR UPDATE"
        async with self.w.database.transaction() as connection:
            await connection.execute(lock, (number,))
            await resolve_some(connection, number, most)

    async def cancel(self, place: int) -> None:
        one = CancelTasks(task_ids=(self.ids[place],))
        done = await cancel_tasks(self.w.store, self.groups[self.nodes[place].group], one)
        if done.cancelled or done.stopping:
            self.cancelled.add(self.ids[place])

    async def finish(self) -> None:
        while len(self.ids) < len(self.nodes):
            await self.submit()
        for _ in range(4 * MOST):
            await resolve_all(self.w.store)
            for host in self.hosts:
                await self.claim(host, 100)
                await self.report(host, list(host.held.values()))
        await resolve_all(self.w.store)

    async def check(self) -> None:
        await self.w.check()
        rows = await self.w.rows(
            "SELECT task_id, state, kind FROM task_result WHERE task_id = ANY(%s)", self.ids
        )
        states = {row["task_id"]: row["state"] for row in rows}
        kinds = {row["task_id"]: row["kind"] for row in rows}
        assert set(states) == set(self.ids), "every task ends"
        for task, node in zip(self.ids, self.nodes, strict=True):
            bad = [one for one in node.parents if states[self.ids[one]] != "succeeded"]
            if task in self.cancelled:
                assert states[task] == "cancelled"
            elif bad:
                assert (states[task], kinds[task]) == ("cancelled", "dependency_failed")
            else:
                expected = "failed" if node.failures >= node.attempts else "succeeded"
                assert states[task] == expected
        assert await self.w.value("SELECT count(*) FROM task_parents") == 0


@settings(
    max_examples=examples(6),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(nodes=graphs(), acts=ACTS)
def test_random_graphs_end_as_their_edges_say(
    database: str, nodes: list[Node], acts: list[tuple[str, int]]
) -> None:
    asyncio.run(_carry_out(database, nodes, acts))


async def _carry_out(database: str, nodes: list[Node], acts: list[tuple[str, int]]) -> None:
    options = StoreOptions(database_url=database)
    async with Store.open(options) as store:
        user = await create_user(store, f"{uuid4()}")
        w = World(store, user.user_id)
        campaign = Campaign(w, nodes)
        await campaign.begin()
        for action, which in acts:
            await campaign.act(action, which)
        await campaign.finish()
        await campaign.check()
