"""The calls about schedules without async; :class:`SyncClient` has them."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from mitosis.client.client import Client
from mitosis.client.job_calls import JobReference
from mitosis.client.loop_thread import LoopThread
from mitosis.client.schedule_calls import ScheduleReference
from mitosis.client.sync_task_group import each_of
from mitosis.contracts.overlap import Overlap
from mitosis.contracts.schedules import BackfillAnswer, ScheduleInfo, TriggerAnswer


class SyncScheduleCalls:
    """Create, list, show, change, pause, trigger, backfill and delete schedules."""

    _client: Client
    _loop: LoopThread

    def create_schedule(self, job: JobReference, **fields: Any) -> ScheduleInfo:
        return self._loop.run(self._client.create_schedule(job, **fields))

    def schedules(
        self, *, job: str | None = None, group_name: str | None = None
    ) -> Iterator[ScheduleInfo]:
        return each_of(self._loop, self._client.schedules(job=job, group_name=group_name))

    def schedule(self, schedule: ScheduleReference) -> ScheduleInfo:
        return self._loop.run(self._client.schedule(schedule))

    def update_schedule(self, schedule: ScheduleReference, **fields: Any) -> ScheduleInfo:
        return self._loop.run(self._client.update_schedule(schedule, **fields))

    def pause_schedule(
        self, schedule: ScheduleReference, note: str | None = None, *, drop: bool = False
    ) -> ScheduleInfo:
        return self._loop.run(self._client.pause_schedule(schedule, note, drop=drop))

    def resume_schedule(self, schedule: ScheduleReference, note: str | None = None) -> ScheduleInfo:
        return self._loop.run(self._client.resume_schedule(schedule, note))

    def trigger_schedule(
        self, schedule: ScheduleReference, overlap: Overlap | None = None
    ) -> TriggerAnswer:
        return self._loop.run(self._client.trigger_schedule(schedule, overlap))

    def backfill_schedule(
        self,
        schedule: ScheduleReference,
        first: datetime,
        last: datetime,
        *,
        overlap: Overlap = Overlap.BUFFER_ALL,
        dry_run: bool = False,
    ) -> BackfillAnswer:
        return self._loop.run(
            self._client.backfill_schedule(schedule, first, last, overlap=overlap, dry_run=dry_run)
        )

    def delete_schedule(self, schedule: ScheduleReference) -> None:
        self._loop.run(self._client.delete_schedule(schedule))
