"""Two task groups on two simulated hosts over the real store: what is there, beside what is recorded.

The cases of ``tools/model/debts.cpp`` on the real functions: verbs, deaths, partitions, Temporal away from
one host, interrupted chunks. A host does what a real agent does (hello, renewals and their orders, claims,
hooks), one step at a time; :class:`Broken` says that a rule of the protocol was broken.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from uuid import UUID

from mitosis.contracts.control import ReleaseReason, ReleaseRequest
from mitosis.contracts.errors import (
    Conflict,
    InvalidTransition,
    LeaseLost,
    MitosisError,
    NotFound,
    TaskGroupClosed,
)
from mitosis.contracts.http import RetryBody
from mitosis.contracts.wire import (
    ClaimedTask,
    LeaseStanding,
    Outcome,
    Renewal,
    RenewalAnswer,
    TaskAttempt,
    TaskReport,
)
from mitosis.store.groups.deletion import delete_chunk, delete_group
from mitosis.store.groups.views import list_groups
from mitosis.store.leases.granting import get_grant, take_lease
from mitosis.store.leases.scheduler import assign_round
from mitosis.store.managers.contact import renew
from mitosis.store.managers.environments import get_environment
from mitosis.store.managers.hello import say_goodbye
from mitosis.store.managers.release import release_lease
from mitosis.store.managers.views import observe_manager
from mitosis.store.tasks.retry import retry_tasks
from tests.support.aging import delete_expired, time_passes
from tests.support.campaigns import Host, World, failed, held, succeeded
from tests.support.group_workflow import follow_task_group
from workflows.decisions import Discard, Finalize, Settle, group_step

HOOK = {"command": ["clean"], "timeout": "1m"}


class Broken(AssertionError):
    """A rule does not hold."""


@dataclass
class SimulatedHost:
    """One machine and its agent."""

    world: "Debts"
    host: Host
    up: bool = True
    cut: bool = False
    """The API cannot be reached."""
    deaf: bool = False
    """Temporal cannot be reached."""
    boots: int = 1
    session: UUID | None = None
    ending: bool = False
    over: int | None = None
    setup: UUID | None = None
    hook: UUID | None = None
    running: list[tuple[UUID, ClaimedTask]] = field(default_factory=list)
    dirty: set[UUID] = field(default_factory=set)
    """Setups that have started and were not torn down: files, whatever dies."""
    torn: set[UUID] = field(default_factory=set)
    """Torn down since, and nothing has died that excuses a second teardown."""

    @property
    def reachable(self) -> bool:
        return self.up and not self.cut

    # --- faults -------------------------------------------------------------------------------

    async def kill(self) -> None:
        self.up, self.session, self.ending, self.over, self.setup = False, None, False, None, None
        if self.hook is not None:
            self.torn.discard(self.hook)
        self.torn.clear()
        self.hook, self.running = None, []

    async def stop(self) -> None:
        """The agent stops in order."""
        if self.reachable:
            epoch = self.host.epoch if self.session else None
            await self.kill()
            manager, incarnation = self.host.manager_id, self.host.incarnation
            await say_goodbye(self.world.w.store, manager, epoch, incarnation)

    async def reboot(self) -> None:
        await self.kill()
        self.boots += 1

    async def start(self) -> None:
        if not self.up and not self.cut:
            self.host.boot = f"boot-{self.boots}"
            self.up = True
            await self.greet()

    async def lapse(self) -> None:
        """The silent host is lost: its clock has passed."""
        if self.reachable:
            return
        manager = self.host.manager_id
        await self.world.w.rows(
            "UPDATE leases AS l SET alive_until = now() - interval '1 s' FROM managers AS m"
            " WHERE m.id = l.manager_id AND m.uuid = %s AND l.state IN ('active', 'ending')",
            manager,
        )
        await self.world.w.rows(
            "UPDATE manager_live AS c SET last_contact_at = now() - interval '1 h' FROM managers AS m"
            " WHERE m.id = c.manager_id AND m.uuid = %s",
            manager,
        )
        lease = (await observe_manager(self.world.w.store, manager)).lease
        reason = ReleaseReason.LOST
        if lease is not None and lease.state == "offered":
            reason = ReleaseReason.UNREACHABLE
        epoch = None if lease is None else lease.epoch
        await release_lease(
            self.world.w.store, ReleaseRequest(manager_id=manager, epoch=epoch, reason=reason)
        )

    # --- the agent ----------------------------------------------------------------------------

    async def greet(self, *, again: bool = False) -> None:
        changes = {"incarnation": self.host.incarnation} if again else {}
        answer = await self.host.hello(**changes)
        for group in answer.owed:
            if not self.world.lose_answer():  # else the next renewal names it again
                await self.tear_down(group)
        if answer.lease is not None and not again:
            await self.adopt(answer.lease.epoch)

    async def renew(self) -> None:
        """One renewal, and what its answer orders."""
        if not self.reachable:
            return
        running = [TaskAttempt(task_id=t.task_id, attempt=t.attempt) for _, t in self.running]
        epoch = self.host.epoch if self.session else None
        renewal = Renewal(
            incarnation=self.host.incarnation,
            epoch=epoch,
            over=None if self.session else self.over,
            running=running if epoch else [],
        )
        answer = await renew(self.world.w.store, self.host.manager_id, renewal)
        await self.hear(answer)

    async def hear(self, answer: RenewalAnswer) -> None:
        if answer.lease is None or answer.lease.epoch != self.over:
            self.over = None
        if self.session is not None:
            await self._in_session(answer)
        elif answer.standing is LeaseStanding.GONE:
            await self.greet(again=True)
        elif answer.lease is not None and self.over is None:
            if answer.lease.standing is LeaseStanding.ENDING:
                self.setup, self.over = None, answer.lease.epoch
            elif self.setup is None:
                await self.adopt(answer.lease.epoch)
        for group in answer.teardowns:
            await self.tear_down(group)

    async def _in_session(self, answer: RenewalAnswer) -> None:
        gone = {one.task_id for one in answer.superseded}
        self.running = [(group, task) for group, task in self.running if task.task_id not in gone]
        self.ending = self.ending or answer.standing is not LeaseStanding.ACTIVE
        if answer.order is not None and answer.order.kill:
            reports = [
                TaskReport(task_id=t.task_id, attempt=t.attempt, outcome=Outcome.CANCELLED)
                for _, t in self.running
            ]
            self.running = []
            if reports and answer.standing is LeaseStanding.ENDING:
                await self.host.report(*reports)
        if self.ending and not self.running:
            self.session = None
            if answer.standing is LeaseStanding.ENDING:
                self.over, self.ending = self.host.epoch, False
            else:
                self.ending = False
                await self.greet(again=True)

    async def adopt(self, epoch: int) -> None:
        """Work under a lease: begin its setup, or its session if that is done."""
        with suppress(LeaseLost, InvalidTransition):
            grant = await get_grant(self.world.w.store, self.host.manager_id, epoch)
            self.host._begin(epoch)
            group = grant.task_group_id
            if grant.lease_state == "ending":
                self.over = epoch
            elif grant.environment_state == "ready":
                self.begin_session(group)
            elif self.hook is None:
                await self.host.environment(group, "preparing", epoch=epoch, fingerprint="f")
                if group in self.dirty and grant.environment_state != "preparing":
                    raise Broken("setup over the leftovers of the one before")
                await self.begin_setup(group)

    async def begin_setup(self, group: UUID) -> None:
        for other in self.dirty - {group}:
            if not await self.world.dormant(self, other):
                raise Broken("setup of another group before the owed teardown")
        if any(owner != group for owner, _ in self.running):
            raise Broken("setup beside a process of another group")
        if self.hook is not None:
            raise Broken("setup beside a teardown")
        self.setup = group
        self.dirty.add(group)
        self.torn.discard(group)

    def begin_session(self, group: UUID) -> None:
        if group not in self.dirty:
            raise Broken("work without a setup")
        self.session, self.ending = group, False

    async def setup_ends(self, *, well: bool) -> None:
        group = self.setup
        if group is None or not self.reachable:
            return
        self.setup = None
        event = "prepared" if well else "setup_failed"
        try:
            state = await self.host.environment(group, event, epoch=self.host.epoch)
        except (LeaseLost, InvalidTransition, NotFound):
            return
        if not well:
            self.over = self.host.epoch
            if state == "gone":
                self.dirty.discard(group)
        else:
            await self.adopt(self.host.epoch)

    async def take(self) -> None:
        """The command of Temporal to take an offer; withdrawn if the host does not hear it."""
        store, manager = self.world.w.store, self.host.manager_id
        lease = (await observe_manager(store, manager)).lease
        if lease is None or lease.state != "offered":
            return
        if not self.reachable or self.deaf:
            reason = ReleaseReason.UNREACHABLE
            await release_lease(
                store, ReleaseRequest(manager_id=manager, epoch=lease.epoch, reason=reason)
            )
        elif self.session is None:
            with suppress(LeaseLost):
                await take_lease(store, manager, lease.epoch)
                if not self.world.lose_answer():
                    await self.adopt(lease.epoch)

    async def clean(self) -> None:
        """The command of Temporal to tear down what is of no use."""
        view = await observe_manager(self.world.w.store, self.host.manager_id)
        if self.reachable and not self.deaf:
            for one in view.environments:
                if one.cleanable and one.state != "owed":
                    await self.tear_down(one.task_group_id)

    async def tear_down(self, group: UUID) -> None:
        """Begin a teardown, if nothing of the group runs here; one at a time."""
        if self.hook is not None or self.session == group:
            return
        if any(owner == group for owner, _ in self.running):
            return
        if self.setup == group:
            self.setup = None
        with suppress(InvalidTransition, NotFound):
            grant = await get_environment(self.world.w.store, self.host.manager_id, group)
            await self.host.environment(group, "tear_down")
            if grant.environment_teardown_hook is None:
                raise Broken("the hook of a teardown is not known any more")
            if group in self.torn:
                raise Broken("a teardown for the second time")
            self.hook = group

    async def hook_ends(self) -> None:
        group = self.hook
        if group is None or not self.reachable:
            return
        self.hook = None
        self.dirty.discard(group)
        self.torn.add(group)
        with suppress(InvalidTransition, NotFound):
            await self.host.environment(group, "cleaned")

    async def claim(self) -> None:
        if self.reachable and self.session and not self.ending and not self.running:
            answer = await self.host.claim(1)
            for task in answer.tasks:
                self.running.append((self.session, task))

    async def finish(self, *, well: bool) -> None:
        if self.reachable and self.running:
            _, task = self.running.pop()
            await self.host.report(succeeded(task) if well else failed(task, exit_code=1))


@dataclass
class Debts:
    """The whole: groups, hosts, and the pokes that were written and not yet followed."""

    w: World
    hosts: list[SimulatedHost] = field(default_factory=list)
    groups: list[UUID] = field(default_factory=list)
    """By place; a deleted group is followed by a new one of the same name."""
    deleted: set[UUID] = field(default_factory=set)
    poked: set[UUID] = field(default_factory=set)
    lost_answers: int = 0

    async def begin(self) -> None:
        self.groups = [await self.make(place) for place in range(2)]
        for _ in range(2):
            host = await self.w.host()
            self.hosts.append(SimulatedHost(self, host))

    async def make(self, place: int) -> UUID:
        return await self.w.group(f"group-{place}", environment_teardown_hook=HOOK)

    def lose_answer(self) -> bool:
        lost, self.lost_answers = self.lost_answers > 0, max(0, self.lost_answers - 1)
        return lost

    async def lose_next_answer(self) -> None:
        self.lost_answers = 1

    async def dormant(self, where: SimulatedHost, group: UUID) -> bool:
        """Whether this environment is kept for a group that goes on."""
        view = await observe_manager(self.w.store, where.host.manager_id)
        states = {one.task_group_id: (one.state, one.cleanable) for one in view.environments}
        return states.get(group) == ("ready", False)

    # --- verbs --------------------------------------------------------------------------------

    async def verb(self, name: str, place: int) -> None:  # noqa: C901 - one line per verb
        group = self.groups[place]
        with suppress(InvalidTransition, TaskGroupClosed, Conflict):
            match name:
                case "submit":
                    await self.w.submit(group, 1)
                case "close":
                    await self.w.close(group)
                case "reopen":
                    await self.w.reopen(group)
                case "cancel":
                    await self.w.cancel(group)
                case "let finish":
                    await self.w.cancel(group, cancel_running_tasks=False)
                case "force":
                    await self.w.complete(group, force=True)
                case "retry":
                    key = RetryBody(idempotency_key="k", limit=10)
                    await retry_tasks(self.w.store, group, group, key)
                case "delete":
                    await delete_group(self.w.store, group)
                    self.deleted.add(group)
                    self.groups[place] = await self.make(place)

    # --- the control plane --------------------------------------------------------------------

    async def round(self) -> None:
        await assign_round(self.w.store)

    async def chunk(self) -> None:
        await delete_chunk(self.w.store, 1)

    async def interrupted_chunk(self) -> None:
        async with held(self.url) as open_one:
            await delete_chunk(self.w.on(open_one).store, 1)
            await open_one.held.rollback()

    async def month(self) -> None:
        """It passes, and what is kept no longer is deleted."""
        for where in self.hosts:
            if not where.reachable:
                await self.w.rows(
                    "UPDATE manager_live AS c SET last_contact_at = last_contact_at - interval '1 h'"
                    " FROM managers AS m WHERE m.id = c.manager_id AND m.uuid = %s",
                    where.host.manager_id,
                )
        await time_passes(self.w, 31)
        await delete_expired(self.w)

    url: str = ""

    async def workflow(self, place: int) -> None:
        """What the group's workflow does after a poke, until it waits."""
        await self.follow(self.groups[place])

    async def follow(self, group: UUID) -> None:
        if group not in self.poked:
            return
        self.poked.discard(group)
        await follow_task_group(self.w.control, group, self.check_nothing_owed)

    # --- the rules ----------------------------------------------------------------------------

    async def check_nothing_owed(self, group: UUID) -> None:
        """The group has just settled: only hosts that are lost or stopped may owe it a teardown."""
        owing = await self.w.rows(
            "SELECT e.state FROM environments AS e JOIN task_groups AS g ON g.id = e.group_id"
            " JOIN manager_live AS c ON c.manager_id = e.manager_id"
            " WHERE g.uuid = %s AND e.state = 'owed' AND NOT c.offline",
            group,
        )
        if owing:
            raise Broken("settled before a teardown that a host in contact owes")

    async def step(self, action: Callable[[], Awaitable[None]]) -> None:
        """Do one thing, then look at every rule."""
        await action()
        self.poked |= {one for kind, one in await self.w.pokes() if kind == "task_group" and one}
        await self.check()

    async def check(self) -> None:
        for where in self.hosts:
            if where.hook is not None and any(g == where.hook for g, _ in where.running):
                raise Broken("teardown while a process of the group runs")
        listed = {
            one.task_group_id for one in (await list_groups(self.w.store, self.w.user_id)).items
        }
        if listed != set(self.groups):
            raise Broken("a list shows a deleted group, or misses another one")
        for group in self.groups:
            view = await self.w.control.observe_task_group(group)
            due = isinstance(group_step(view), Settle | Finalize | Discard)
            if due and group not in self.poked:
                raise Broken(f"nothing wakes the workflow of a group: {group_step(view)}")
            if view.settled and (view.live_leases or view.unfinished):
                raise Broken("settled with something left")
        await self.w.check()

    async def heal(self) -> None:
        """Everything works again and every group ends: in the end nothing is left anywhere."""
        for where in self.hosts:
            where.cut = where.deaf = False
            await where.start()
        for place in range(len(self.groups)):
            await self.step(partial(self.verb, "cancel", place))
        for _ in range(20):
            for where in self.hosts:
                for act in (where.take, where.renew, where.hook_ends, where.renew):
                    await self.step(act)
                await self.step(partial(where.setup_ends, well=True))
            for place in range(len(self.groups)):
                await self.step(partial(self.workflow, place))
            if await self.rested():
                return
        raise Broken(await self.story())

    async def rested(self) -> bool:
        for where in self.hosts:
            view = await observe_manager(self.w.store, where.host.manager_id)
            if where.dirty or where.running or view.lease or view.environments:
                return False
        views = [await self.w.control.observe_task_group(group) for group in self.groups]
        return all(view.settled for view in views)

    async def story(self) -> str:
        hosts = [(where.dirty, where.running, where.session) for where in self.hosts]
        rows = await self.w.rows("SELECT manager_id, group_id, state FROM environments")
        leases = await self.w.rows(
            "SELECT epoch, group_id, state FROM leases WHERE state <> 'ended'"
        )
        return f"not at rest: {hosts}, {rows}, {leases}"

    async def emptied(self) -> None:
        """Chunks of deleted groups go on until none of their rows is left."""
        await self.w.delete_rows(10)
        left = await self.w.value(
            "SELECT count(*) FROM task AS t WHERE NOT EXISTS"
            " (SELECT FROM task_groups AS g WHERE g.id = t.group_id)"
        )
        if left:
            raise Broken("rows of a deleted group are left")


def refused(error: MitosisError) -> bool:
    return isinstance(error, InvalidTransition | LeaseLost | NotFound)
