"""A small world in a real database: a user, hosts, task groups; short words for what agents do."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import msgspec
from psycopg import AsyncConnection
from psycopg.rows import DictRow, dict_row

from mitosis.contracts.agent_http import EnvironmentChange, Hello, HookReport
from mitosis.contracts.control import Cancel, Close, Complete, Reopen, VerbRequest
from mitosis.contracts.http import RegisterManager, TaskGroupSpec
from mitosis.contracts.task import SubmittedTask, TaskSubmission
from mitosis.contracts.wire import (
    ClaimAnswer,
    ClaimedTask,
    ClaimTasks,
    Held,
    Outcome,
    Renewal,
    RenewalAnswer,
    ReportAnswer,
    ReportTasks,
    SubmitAnswer,
    SubmitTasks,
    TaskAttempt,
    TaskReport,
)
from mitosis.store.control.control_store import ControlStore
from mitosis.store.groups.definition import create_group
from mitosis.store.groups.deletion import delete_chunk
from mitosis.store.leases.granting import take_lease
from mitosis.store.leases.scheduler import assign_round
from mitosis.store.managers.contact import renew
from mitosis.store.managers.environments import change_environment
from mitosis.store.managers.hello import say_hello
from mitosis.store.managers.registration import register_manager
from mitosis.store.managers.views import observe_manager
from mitosis.store.pg.database import Connection, Database
from mitosis.store.pg.wake import Wake
from mitosis.store.store import Store, StoreOptions
from mitosis.store.tasks.claim import claim_tasks
from mitosis.store.tasks.report import report_tasks
from mitosis.store.tasks.submit import submit_tasks
from mitosis.store.users.accounts import create_user
from tests.support.waiting import wait_until_async

CALLS = 1000
"""More often than any step must be repeated until nothing is left: a fault there fails, and does not hang."""


@dataclass
class Host:
    """One manager as its agent sees it: counters of its own, calls of the store."""

    world: "World"
    manager_id: UUID
    machine: str = "machine-1"
    boot: str = "boot-1"
    incarnation: int = 0
    epoch: int = 0
    claim_seq: int = 0
    acked_seq: int = 0
    held: dict[int, ClaimedTask] = field(default_factory=dict)

    async def hello(self, **changes: Any) -> Any:
        """Say hello as a new process, or as told."""
        self.incarnation = changes.pop("incarnation", self.incarnation + 1)
        body = {
            "incarnation": self.incarnation,
            "machine_id": self.machine,
            "boot_id": self.boot,
            "host_name": "host",
            "cores": (0, 1),
            "agent_version": "test",
            **changes,
        }
        answer = await say_hello(self.world.store, self.manager_id, Hello(**body))
        self.incarnation = answer.incarnation
        if answer.lease is not None:
            self._begin(answer.lease.epoch)
        return answer

    def _begin(self, epoch: int) -> None:
        self.epoch, self.claim_seq, self.acked_seq, self.held = epoch, 0, 0, {}

    async def offered_epoch(self) -> int:
        """The epoch of the open offer."""
        view = await observe_manager(self.world.store, self.manager_id)
        assert view.lease is not None, view
        assert view.lease.state == "offered", view
        return view.lease.epoch

    async def take(self, group: UUID, *, prepare: bool = True) -> None:
        """Take the open offer and prepare the environment."""
        self._begin(await self.offered_epoch())
        await take_lease(self.world.store, self.manager_id, self.epoch)
        if prepare:
            await self.prepare(group)

    async def prepare(self, group: UUID) -> None:
        await self.environment(group, "preparing", epoch=self.epoch, fingerprint="f1")
        await self.environment(group, "prepared", epoch=self.epoch)

    async def environment(self, group: UUID, event: str, **facts: Any) -> str:
        change = EnvironmentChange.model_validate({"event": event, **facts})
        answer = await change_environment(self.world.store, self.manager_id, group, change)
        return answer.state.value

    async def clean(self, group: UUID, **facts: Any) -> None:
        await self.environment(group, "tear_down")
        await self.environment(group, "cleaned", **facts)

    async def claim(self, most: int = 100, *, wait: float = 0.0, lose: bool = False) -> ClaimAnswer:
        """One claim; with ``lose`` its answer never arrives."""
        if not lose:
            self.claim_seq += 1
        seq = self.claim_seq + 1 if lose else self.claim_seq
        request = ClaimTasks(
            epoch=self.epoch,
            claim_seq=seq,
            acked_seq=self.acked_seq,
            max_tasks=most,
            wait_seconds=wait,
        )
        answer = await claim_tasks(self.world.store, self.manager_id, request)
        if not lose:
            self.acked_seq = seq
            self.held.update({task.task_id: task for task in answer.tasks})
        return answer

    async def report(self, *reports: TaskReport, epoch: int | None = None) -> ReportAnswer:
        request = ReportTasks(epoch=epoch or self.epoch, reports=list(reports))
        return await report_tasks(self.world.store, self.manager_id, request)

    async def finish(self, tasks: Sequence[ClaimedTask]) -> ReportAnswer:
        """Report success of these."""
        return await self.report(*(succeeded(task) for task in tasks))

    async def renew(
        self,
        *,
        started: Sequence[ClaimedTask] = (),
        returned: Sequence[ClaimedTask] = (),
        announced: Sequence[ClaimedTask] = (),
        held: Sequence[int] | None = None,
        trouble: str | None = None,
    ) -> RenewalAnswer:
        renewal = Renewal(
            incarnation=self.incarnation,
            epoch=self.epoch,
            started=[TaskAttempt(task_id=t.task_id, attempt=t.attempt) for t in started],
            returned=[TaskAttempt(task_id=t.task_id, attempt=t.attempt) for t in returned],
            announced=[TaskAttempt(task_id=t.task_id, attempt=t.attempt) for t in announced],
            held=None if held is None else Held(acked_seq=self.acked_seq, task_ids=list(held)),
            report_trouble=trouble,
        )
        return await renew(self.world.store, self.manager_id, renewal)


@dataclass
class World:
    """Stores over one database, and a user to own things."""

    store: Store
    user_id: UUID

    @property
    def database(self) -> Database:
        return self.store.database

    @property
    def wake(self) -> Wake:
        assert self.store.wake is not None
        return self.store.wake

    @property
    def control(self) -> ControlStore:
        return ControlStore(self.store)

    def on(self, database: Database) -> "World":
        """Return the same world, everything in it done on another database handle."""
        return replace(self, store=Store(database=database))

    async def group(self, name: str = "campaign", **spec: Any) -> UUID:
        info = await create_group(self.store, TaskGroupSpec(name=name, **spec), self.user_id)
        return info.task_group_id

    async def host(self, *, tags: Sequence[str] = (), hello: bool = True, **facts: Any) -> Host:
        spec = RegisterManager(name="host", tags=frozenset(tags))
        manager_id, _ = await register_manager(self.store, spec, self.user_id)
        host = Host(self, manager_id, **facts)
        if hello:
            await host.hello()
        return host

    async def leased_host(self, group: UUID, **facts: Any) -> Host:
        """A new host with an ACTIVE lease on the group and a ready environment; needs ready tasks."""
        host = await self.host(**facts)
        await assign_round(self.store)
        await host.take(group)
        return host

    async def discard_all(self, group: UUID) -> None:
        """Cancel what nobody has claimed, as the workflow does after a cancel: chunk by chunk."""
        for _ in range(CALLS):
            if not (await self.control.discard(group)).remaining:
                return
        raise AssertionError(f"tasks remain after {CALLS} chunks")

    async def delete_rows(self, limit: int = 100) -> int:
        """Delete all rows that are to be deleted; return in how many chunks."""
        for chunks in range(CALLS):
            if not await delete_chunk(self.store, limit):
                return chunks
        raise AssertionError(f"rows remain after {CALLS} chunks, or chunks have no end")

    async def submit(self, group: UUID, count: int = 1, **request: Any) -> SubmitAnswer:
        tasks = [TaskSubmission(command=["true", str(i)]) for i in range(count)]
        return await self.submit_tasks(group, tasks, **request)

    async def submit_tasks(
        self, group: UUID, tasks: Sequence[SubmittedTask], **request: Any
    ) -> SubmitAnswer:
        return await submit_tasks(self.store, group, SubmitTasks(tasks=list(tasks), **request))

    async def close(self, group: UUID) -> Any:
        return await self.apply(group, Close())

    async def reopen(self, group: UUID) -> Any:
        return await self.apply(group, Reopen())

    async def cancel(self, group: UUID, **verb: Any) -> Any:
        return await self.apply(group, Cancel(**verb))

    async def complete(self, group: UUID, **verb: Any) -> Any:
        return await self.apply(group, Complete(**verb))

    async def apply(self, group: UUID, verb: Close | Reopen | Cancel | Complete) -> Any:
        return await self.control.apply(VerbRequest(task_group_id=group, verb=verb))

    async def rows(self, statement: Any, *parameters: Any) -> list[DictRow]:
        async with self.database.connection() as connection:
            cursor = await connection.execute(statement, parameters)
            return await cursor.fetchall() if cursor.description else []

    async def value(self, statement: Any, *parameters: Any) -> Any:
        rows = await self.rows(statement, *parameters)
        return next(iter(rows[0].values())) if rows else None

    async def pokes(self) -> set[tuple[str, UUID | None]]:
        """Take everything out of the outbox."""
        rows = await self.rows("DELETE FROM outbox RETURNING kind, subject")
        return {(row["kind"], row["subject"]) for row in rows}

    async def check(self) -> None:
        """Counters are what the rows say, in every group."""
        wrong = await self.rows(
            """
            SELECT v.* FROM group_live AS v
             WHERE v.unfinished <> (SELECT count(*) FROM open_task AS o WHERE o.group_id = v.group_id)
                OR v.total <> (SELECT count(*) FROM task AS t WHERE t.group_id = v.group_id)
                OR (v.succeeded, v.failed, v.cancelled) NOT IN (
                   SELECT count(*) FILTER (WHERE r.state = 'succeeded'),
                          count(*) FILTER (WHERE r.state = 'failed'),
                          count(*) FILTER (WHERE r.state = 'cancelled')
                     FROM task_result AS r WHERE r.group_id = v.group_id)
            """
        )
        assert wrong == []


@asynccontextmanager
async def world(
    url: str, *, host_lost_after: timedelta = timedelta(seconds=90), pool_size: int = 10
) -> AsyncIterator[World]:
    """A world in an empty database."""
    options = StoreOptions(database_url=url, pool_size=pool_size, host_lost_after=host_lost_after)
    async with Store.open(options) as store:
        user = await create_user(store, "alice")
        yield World(store, user.user_id)


def succeeded(task: ClaimedTask, **facts: Any) -> TaskReport:
    return TaskReport(
        task_id=task.task_id, attempt=task.attempt, outcome=Outcome.SUCCEEDED, exit_code=0, **facts
    )


def failed(task: ClaimedTask, kind: str = "exit_code", **facts: Any) -> TaskReport:
    return TaskReport(
        task_id=task.task_id, attempt=task.attempt, outcome=Outcome.FAILED, kind=kind, **facts
    )


def hook(state: str, **facts: Any) -> HookReport:
    return HookReport.model_validate(
        {"state": state, "started_at": "2030-01-01T00:00:00Z", **facts}
    )


def spec_of(task: ClaimedTask) -> SubmittedTask:
    return msgspec.json.decode(task.spec, type=SubmittedTask)


class HeldDatabase(Database):
    """Everything a store does on it happens in one transaction that stays open until ``commit``."""

    def __init__(self, connection: Connection) -> None:
        self.held = connection

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        yield self.held

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        await self.held.execute("SELECT")  # so that what follows is a savepoint, not all of it
        async with self.held.transaction():
            yield self.held

    @asynccontextmanager
    async def pipelined_transaction(self) -> AsyncIterator[Connection]:
        async with self.transaction() as connection:
            yield connection

    async def commit(self) -> None:
        await self.held.commit()


@asynccontextmanager
async def held(url: str) -> AsyncIterator[HeldDatabase]:
    """A database whose one transaction the test commits when it likes."""
    connection = await AsyncConnection.connect(url, row_factory=dict_row)
    async with connection:
        yield HeldDatabase(connection)


async def until_blocked(w: World, sessions: int = 1) -> None:
    """Wait until so many sessions of the database wait for a lock."""

    async def blocked() -> bool:
        count = await w.value(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
            " AND wait_event_type = 'Lock'"
        )
        return int(count) >= sessions

    await wait_until_async(blocked)


async def stranded(w: World) -> int:
    """Claimed rows whose epoch has ended: there must never be one."""
    return int(
        await w.value(
            "SELECT count(*) FROM open_task AS o JOIN leases AS l ON l.epoch = o.epoch"
            " WHERE o.state = 1 AND l.state = 'ended'"
        )
    )
