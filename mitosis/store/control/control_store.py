"""The operations of the control plane on PostgreSQL: what the Temporal activities and the relay call."""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from uuid import UUID

from mitosis.contracts.control import (
    AssignAnswer,
    DiscardAnswer,
    Expected,
    GroupView,
    ManagerView,
    Poke,
    ReleaseAnswer,
    ReleaseRequest,
    VerbRequest,
    WaitingWork,
)
from mitosis.contracts.liveness import API_STALE_SECONDS
from mitosis.contracts.run_control import RunSituation, RunVerbRequest
from mitosis.contracts.runs import CancelRun
from mitosis.contracts.schedule_control import (
    CarriedSchedule,
    Tick,
    TickAnswer,
    UnreadableSchedule,
)
from mitosis.store.dependencies.resolve import resolve_all
from mitosis.store.groups import deletion, endings
from mitosis.store.groups.explain import waiting_chain
from mitosis.store.groups.views import observe_group
from mitosis.store.leases.look import look
from mitosis.store.leases.scheduler import assign_round
from mitosis.store.managers.explain import idle_chain
from mitosis.store.managers.release import release_claimed
from mitosis.store.managers.views import observe_manager
from mitosis.store.pg import outbox
from mitosis.store.processes.live import live_builds, own_build
from mitosis.store.retention.deletion import ExpiredRows
from mitosis.store.runs import stopping
from mitosis.store.runs.turns import Turns
from mitosis.store.runs.watching import observe_run
from mitosis.store.schedules import carrying, ticks
from mitosis.store.store import Store


class ControlStore:
    """Implements the ports beside the activities and in ``workflows.ports``, which describe the methods.

    ``TaskGroupPort``, ``ManagerPort``, ``SchedulerPort``, ``RetentionPort``, ``RunPort``, ``OutboxPort``
    and ``HousekeepingPort``.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._expired = ExpiredRows(store)
        self._discarding = endings.Discarding(store)
        self._runs = Turns(store)

    async def observe_task_group(self, task_group_id: UUID) -> GroupView:
        view = await observe_group(self._store, task_group_id)
        if view.waiting_for is None or not view.unfinished:
            return view
        chain = await waiting_chain(self._store, task_group_id)
        return view.model_copy(update={"chain": chain})

    async def apply(self, request: VerbRequest) -> GroupView:
        await endings.apply(self._store, request)
        return await self.observe_task_group(request.task_group_id)

    async def close_if_inactive(self, task_group_id: UUID) -> GroupView:
        await endings.close_if_inactive(self._store, task_group_id)
        return await self.observe_task_group(task_group_id)

    async def end_after_failed_setups(self, task_group_id: UUID) -> GroupView:
        await endings.end_after_failed_setups(self._store, task_group_id)
        return await observe_group(self._store, task_group_id)

    async def discard(self, task_group_id: UUID) -> DiscardAnswer:
        return await self._discarding.discard(task_group_id)

    async def finalize(self, task_group_id: UUID) -> GroupView:
        await endings.finalize(self._store, task_group_id)
        return await observe_group(self._store, task_group_id)

    async def settle(self, task_group_id: UUID) -> GroupView:
        before = await observe_group(self._store, task_group_id)
        result = await endings.settle(self._store, task_group_id)
        after = await observe_group(self._store, task_group_id)
        if after.exists or result is None:
            return after
        return before.model_copy(update={"settled": True, "result": result})  # it is deleted

    async def delete_chunk(self, limit: int) -> bool:
        return await deletion.delete_chunk(self._store, limit)

    async def delete_expired(self) -> float:
        return await self._expired.delete()

    async def resolve_dependencies(self) -> None:
        await resolve_all(self._store)

    async def advance_runs(self) -> None:
        await self._runs.add_due()
        await self._runs.take_all()
        await stopping.delete_marked(self._store)

    async def observe_run(self, run_id: UUID) -> RunSituation:
        return await observe_run(self._store, run_id)

    async def cancel_run(self, request: RunVerbRequest) -> RunSituation:
        verb = request.verb
        asked = CancelRun(
            reason=verb.reason, grace_seconds=verb.grace_seconds, skip_cleanup=verb.skip_cleanup
        )
        await stopping.cancel_run(self._store, request.run_id, asked)
        return await observe_run(self._store, request.run_id)

    async def start_scheduled(self, tick: Tick) -> TickAnswer:
        return await ticks.start_scheduled(self._store, tick)

    async def take_schedule_turn(self, schedule_id: UUID) -> bool:
        return await ticks.take_turn(self._store, schedule_id)

    async def due_schedules(self) -> Sequence[UUID]:
        return await carrying.due_schedules(self._store)

    async def carried_schedules(
        self, schedule_id: UUID | None = None
    ) -> Sequence[CarriedSchedule | UnreadableSchedule]:
        return await carrying.carried_schedules(self._store, schedule_id)

    async def note_carried(self, carried: CarriedSchedule) -> None:
        await carrying.note_carried(self._store, carried)

    async def note_problem(
        self, carried: CarriedSchedule | UnreadableSchedule, problem: str
    ) -> None:
        await carrying.note_problem(self._store, carried, problem)

    async def note_reverted(self, carried: CarriedSchedule, what: str) -> None:
        await carrying.note_reverted(self._store, carried, what)

    async def observe_manager(self, manager_id: UUID) -> ManagerView:
        view = await observe_manager(self._store, manager_id)
        if not view.exists or not view.online or view.lease is not None:
            return view
        chain = await idle_chain(self._store, manager_id)
        return view.model_copy(update={"chain": chain})

    async def decide_leases(self) -> None:
        async with self._store.database.transaction() as connection:
            await outbox.poke(connection, scheduler=True)

    async def release(self, request: ReleaseRequest) -> ReleaseAnswer:
        return await release_claimed(self._store, request)

    async def assign_round(self) -> AssignAnswer:
        return await assign_round(self._store)

    async def look(self) -> WaitingWork:
        return await look(self._store)

    async def take_pokes(self, limit: int) -> Sequence[Poke]:
        return await outbox.take_pokes(self._store.database, limit)

    async def delete_pokes(self, ids: Sequence[int]) -> None:
        await outbox.delete_pokes(self._store.database, ids)

    def listen_for_pokes(self) -> AbstractAsyncContextManager[outbox.OutboxListener]:
        return outbox.listen_for_pokes(self._store.database)

    @property
    def build(self) -> str:
        return own_build()

    async def live_builds(self) -> Sequence[str]:
        return await live_builds(self._store)

    async def expected(self) -> Expected:
        return await outbox.expected(
            self._store.database,
            api_stale_after=API_STALE_SECONDS,
            host_lost_after=self._store.host_lost_after.total_seconds(),
        )
