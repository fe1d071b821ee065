"""Retention changes no answer that is still promised: the same steps with and without it are answered alike.

Hosts and worker services claim, are lost, come back after months with what they have in their journal,
and go on.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from uuid import UUID

import psycopg
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from mitosis.contracts.control import ReleaseReason, ReleaseRequest
from mitosis.contracts.service_tasks import NamedTaskAttempt
from mitosis.contracts.wire import ClaimedTask
from mitosis.store.leases.scheduler import assign_round
from mitosis.store.leases.silent_services import end_silent_registrations
from mitosis.store.managers.release import release_lease
from mitosis.store.managers.views import observe_manager
from tests.support.aging import delete_expired, time_passes
from tests.support.campaigns import Host, World, succeeded, world
from tests.support.examples import examples
from tests.support.worker_services import Service, healthy, service_group

Step = tuple[str, int]
HOSTS = 2
OF_HOSTS = ("claim", "lose", "return", "report", "renew", "month", "hours", "submit")
OF_SERVICES = ("register", "serve", "vanish", "answer")
STEPS = st.lists(
    st.tuples(
        st.sampled_from((*OF_HOSTS, *OF_SERVICES)),
        st.integers(0, HOSTS - 1),
    ),
    min_size=6,
    max_size=20,
)
GONE: Sequence[Step] = [("register", 0), ("serve", 0), ("vanish", 0), ("month", 0), ("month", 0)]
BACK: Sequence[Step] = [("claim", 0), ("lose", 0), ("month", 0), ("return", 0)]


@dataclass
class Agent:
    """A host, and the attempts whose reports have no answer."""

    host: Host
    leased: bool = False
    journal: list[tuple[int, ClaimedTask]] = field(default_factory=list)


@dataclass
class Pod:
    """A worker service, and the attempts whose reports have no answer."""

    service: Service | None = None
    """Its process; none while it is away."""
    journal: list[NamedTaskAttempt] = field(default_factory=list)


@dataclass
class Run:
    """One run of the steps, and what was answered."""

    w: World
    group: UUID
    agents: list[Agent]
    pods: list[Pod]
    retention: bool
    answers: list[object] = field(default_factory=list)

    async def step(self, name: str, place: int) -> None:  # noqa: C901 - one line per step
        agent = self.agents[place]
        host = agent.host
        match name:
            case "submit":
                await self.w.submit(self.group, 1, idempotency_key=f"k-{place}")
            case "claim" if agent.leased:
                agent.journal += [(host.epoch, one) for one in (await host.claim(1)).tasks]
            case "lose" if agent.leased:
                agent.leased = False
                await self.lost(host)
            case "return" if not agent.leased:
                for owed in (await host.hello()).owed:
                    await host.clean(owed)
                await assign_round(self.w.store)
                if (await observe_manager(self.w.store, host.manager_id)).lease is not None:
                    await host.take(self.group)
                    agent.leased = True
            case "report" if agent.journal:
                epoch, task = agent.journal.pop(0)
                self.answers.append((await host.report(succeeded(task), epoch=epoch)).statuses)
            case "renew":
                self.answers.append((await host.renew()).standing)
            case "month" | "hours":
                await time_passes(self.w, 31 if name == "month" else 0.2)
                if self.retention:
                    await delete_expired(self.w)

    async def step_of_service(self, name: str, place: int) -> None:
        pod = self.pods[place]
        match name:
            case "register" if pod.service is None:
                pod.service = await healthy(self.w, f"pod-{place}")
            case "serve" if pod.service is not None:
                pod.journal += await pod.service.claim(1)
            case "answer" if pod.service is not None and pod.journal:
                answer = await pod.service.report(pod.journal.pop(0))
                self.answers.append((answer.standing, answer.statuses))
            case "vanish" if pod.service is not None:
                await pod.service.ago(601)
                await end_silent_registrations(self.w.store)
                pod.service = None

    async def lost(self, host: Host) -> None:
        await self.w.rows(
            "UPDATE manager_live AS c SET last_contact_at = now() - interval '1 hour',"
            " contact_since = now() - interval '2 hours' FROM managers AS m"
            " WHERE m.id = c.manager_id AND m.uuid = %s",
            host.manager_id,
        )
        await self.w.rows("UPDATE leases SET alive_until = now() WHERE epoch = %s", host.epoch)
        request = ReleaseRequest(
            manager_id=host.manager_id, epoch=host.epoch, reason=ReleaseReason.LOST
        )
        await release_lease(self.w.store, request)


async def answers(url: str, steps: Sequence[Step], *, retention: bool) -> list[object]:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "TRUNCATE task_groups, managers, users, task, open_task, task_result, leases,"
            " task_failures, submission, task_retries, outbox, deleted_groups, retention,"
            " worker_services, named_tasks, service_claims CASCADE"
        )
    async with world(url) as w:
        group = await w.group(max_managers=HOSTS)
        await w.submit(group, 3)
        await service_group(w, count=2)
        agents = [Agent(await w.host()) for _ in range(HOSTS)]
        run = Run(w, group, agents, [Pod() for _ in range(HOSTS)], retention)
        for place in range(HOSTS):
            await run.step("return", place)
        ends = [
            (name, place) for place in range(HOSTS) for name in ("report", "register", "answer")
        ]
        for name, place in [*steps, *ends]:
            await (run.step_of_service if name in OF_SERVICES else run.step)(name, place)
        await w.check()
        return run.answers


@settings(
    max_examples=examples(6),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@example([*BACK, ("report", 0)])
@example([*BACK, ("hours", 0), ("report", 0)])
@example([*BACK, ("month", 0), ("renew", 0), ("report", 0)])
@example([*GONE, ("register", 0), ("answer", 0), ("serve", 0), ("answer", 0)])
@example([*GONE, ("register", 1), ("serve", 1), ("register", 0), ("answer", 1), ("answer", 0)])
@example([("register", 1), ("vanish", 1), *GONE, ("register", 1), ("serve", 1), ("answer", 1)])
@given(STEPS)
def test_no_answer_changes(database: str, steps: list[Step]) -> None:
    async def both() -> None:
        without = await answers(database, steps, retention=False)
        assert await answers(database, steps, retention=True) == without

    asyncio.run(both())
