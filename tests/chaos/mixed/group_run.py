"""One group of a campaign: created, submitted, hit by its verb at its moment, settled, perhaps deleted."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from uuid import UUID

from mitosis.client.sync import SyncClient
from mitosis.contracts.allocation import WorkerAllocationPlan
from mitosis.contracts.errors import AlreadyExists, Conflict, InvalidTransition, NotFound
from mitosis.contracts.http import TaskGroupInfo, TaskGroupSpec
from mitosis.contracts.lifecycle import TaskGroupState
from tests.chaos.mixed.facts import GroupFacts, Rows
from tests.chaos.mixed.hosts import MixedHost, cut, dead
from tests.chaos.mixed.plan import Moment, PlannedGroup, Verb
from tests.chaos.mixed.world import World, insist
from tests.chaos.plan import Victim
from tests.support.checkout import ROOT
from tests.support.waiting import wait_until

LOST_AFTER = timedelta(seconds=20)
PROGRESS_SECONDS = 600.0
SETTLED_SECONDS = 600.0
LOOK_SECONDS = 0.2
BATCH = 100


class GroupRun:
    """One group."""

    def __init__(self, plan: PlannedGroup, world: World) -> None:
        self._plan, self._world = plan, world
        self._records = world.records(plan.number)
        self._name = f"mixed-{plan.number}"
        self._ids: list[int] = []
        self._verb_at: int | None = None
        self._refused: list[str] = []
        self._came_too_late = False
        self._settled_at = 0
        self._deleted_at: int | None = None
        self._rows: Rows | None = None
        self._uuid: UUID
        self.number: int

    def run(self) -> None:
        """From its creation to its end."""
        plan, world = self._plan, self._world
        with world.client() as client:
            self._create(client)
            half = len(plan.tasks) // 2
            self._submit(client, 0, half)
            if plan.verb is Verb.REOPEN:
                insist(lambda: client.close_group(self._uuid))
            else:
                self._submit(client, half, len(plan.tasks))
            with self._moment():
                self._give_verb(client)
                if not plan.goes_on:
                    self._settle(client)
                    self._delete(client)
            if plan.verb is Verb.REOPEN:
                self._submit(client, half, len(self._plan.tasks))
            if plan.goes_on:
                if not self._came_too_late:
                    insist(lambda: client.close_group(self._uuid))
                if plan.verb is Verb.REFUSED:
                    self._refuse(client)
                self._settle(client)
                self._delete(client)
        world.forget(plan.number)
        world.say(f"group {plan.number} is over: {plan.verb}, {plan.moment}, {plan.delete=}")

    def facts(self) -> GroupFacts:
        """To be asked when the campaign is over."""
        database, deleted = self._world.database, self._deleted_at is not None
        return GroupFacts(
            plan=self._plan,
            number=self.number,
            submitted=tuple(self._ids),
            verb_at=self._verb_at,
            refused=tuple(self._refused),
            settled_at=self._settled_at,
            rows=self._rows or database.rows(self.number),
            deleted_at=self._deleted_at,
            executions=self._records.executions(),
            hooks=self._records.hooks(),
            rows_left=database.rows_left(self.number) if deleted else None,
        )

    # --- its steps ------------------------------------------------------------------------------

    def _create(self, client: SyncClient) -> None:
        plan = self._plan
        spec = TaskGroupSpec(
            name=self._name,
            max_managers=plan.max_managers,
            worker_allocation_plan=WorkerAllocationPlan(
                worker_count=plan.workers,
                handler_modules=("tests.chaos.task",),
                python_path=(str(ROOT),),
                environment=self._records.environment,
            ),
            environment_setup_hook=self._records.hook("setup", plan.hook_seconds),
            environment_teardown_hook=self._records.hook("teardown", plan.hook_seconds),
            cancel_grace_seconds=1.0,
            host_lost_after=LOST_AFTER,
        )
        with suppress(AlreadyExists):
            insist(lambda: client.create_group(spec))
        self._uuid = self._info(client).task_group_id
        self.number = self._world.database.number(self._uuid)

    def _info(self, client: SyncClient) -> TaskGroupInfo:
        info = insist(lambda: client.group(self._name))
        assert info is not None, self._name
        return info

    def _submit(self, client: SyncClient, first: int, end: int) -> None:
        for start in range(first, end, BATCH):
            tasks = [t.submission() for t in self._plan.tasks[start : min(end, start + BATCH)]]
            key = f"{self._name}-{start}"
            given = insist(lambda: client.submit(self._uuid, tasks, idempotency_key=key))  # noqa: B023
            assert given is not None, key
            self._ids += given

    def _give_verb(self, client: SyncClient) -> None:
        group, plan = self._uuid, self._plan
        verbs: dict[Verb, Callable[[], object]] = {
            Verb.CANCEL: lambda: client.cancel(group),
            Verb.CANCEL_SOFTLY: lambda: client.cancel(group, cancel_running_tasks=False),
            Verb.COMPLETE: lambda: client.complete(group, force=True),
            Verb.REOPEN: lambda: self._reopen(client),
        }
        if plan.verb is Verb.COMPLETE:
            insist(lambda: client.close_group(group))
        if plan.verb in verbs:
            insist(verbs[plan.verb])
        self._verb_at = time.monotonic_ns()

    def _reopen(self, client: SyncClient) -> None:
        """Refused if the first half has ended by then: the task group is complete, and that is its end."""
        try:
            insist(lambda: client.reopen(self._uuid))
        except InvalidTransition:
            if self._info(client).state is not TaskGroupState.COMPLETE:
                raise
            self._came_too_late = True
            self._plan = replace(self._plan, tasks=self._plan.tasks[: len(self._ids)])

    def _refuse(self, client: SyncClient) -> None:
        """Verbs during the teardown: each is refused and changes nothing."""
        wait_until(lambda: self._records.running("teardown"), PROGRESS_SECONDS, self._story)
        verbs: tuple[Callable[[], object], ...] = (
            lambda: client.reopen(self._uuid),
            lambda: client.delete_group(self._uuid),
        )
        for verb in verbs:
            try:
                insist(verb)
                self._refused.append("accepted")
            except Conflict as error:
                self._refused.append(error.code)

    def _settle(self, client: SyncClient) -> None:
        def settled() -> bool:
            assert not self._world.failed.is_set(), "another group has failed"
            return self._info(client).settled

        wait_until(settled, SETTLED_SECONDS, lambda: str(self._info(client)), LOOK_SECONDS)
        self._settled_at = time.monotonic_ns()

    def _delete(self, client: SyncClient) -> None:
        """Delete it; its name can be used at once, by a group that ends at once."""
        if not self._plan.delete:
            return
        self._rows = self._world.database.rows(self.number)
        insist(lambda: client.delete_group(self._uuid))
        self._deleted_at = time.monotonic_ns()
        with suppress(NotFound):
            insist(lambda: client.group(self._uuid))
            raise AssertionError(f"{self._name} is there after its deletion")
        with suppress(AlreadyExists):
            insist(lambda: client.create_group(TaskGroupSpec(name=self._name)))
        heir = self._info(client)
        assert heir.task_group_id != self._uuid
        assert (heir.state, heir.tasks_total) == (TaskGroupState.OPEN, 0), heir
        insist(lambda: client.close_group(heir.task_group_id))

    # --- its moment -----------------------------------------------------------------------------

    @contextmanager
    def _moment(self) -> Iterator[None]:
        plan, world = self._plan, self._world
        match plan.moment:
            case Moment.TEARDOWN:
                yield
            case Moment.SETUP:
                self._wait_for(lambda: self._records.running("setup"))
                yield
            case Moment.API_DOWN | Moment.CONTROL_DOWN:
                self._wait_for(self._far_enough)
                down = Victim.API if plan.moment is Moment.API_DOWN else Victim.CONTROL
                world.kill_server(down)
                yield
            case Moment.HOST_CUT | Moment.HOST_DEAD:
                self._wait_for(self._far_enough)
                with self._without(self._a_host()):
                    yield
            case _:
                self._wait_for(self._far_enough)
                yield

    def _far_enough(self) -> bool:
        return self._records.done() >= self._plan.at * len(self._ids)

    def _wait_for(self, condition: Callable[[], bool]) -> None:
        """Until it holds, or all that was submitted is over."""

        def there() -> bool:
            assert not self._world.failed.is_set(), "another group has failed"
            return condition() or self._records.done() >= len(self._ids)

        wait_until(there, PROGRESS_SECONDS, self._story, LOOK_SECONDS)

    def _a_host(self) -> MixedHost | None:
        hosts = self._world.database.hosts_of(self.number)
        return self._world.host(hosts[0]) if hosts else None

    @contextmanager
    def _without(self, host: MixedHost | None) -> Iterator[None]:
        """While this host is cut off, or its agent is dead."""
        world = self._world
        if host is None:
            world.say(f"group {self._plan.number} had no host at its moment")
            yield
        elif self._plan.moment is Moment.HOST_CUT:
            with world.disturbing(Moment.HOST_CUT, host), cut(host.api, world.loop):
                yield
        else:
            with world.disturbing(Moment.HOST_DEAD, host), dead(host):
                yield

    def _story(self) -> str:
        return f"{self._name}: {self._records.done()} of {len(self._ids)} done"
