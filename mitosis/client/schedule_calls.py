"""The calls about schedules of jobs; :class:`Client` has them."""

from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any
from uuid import UUID

from mitosis.client.job_calls import JobReference
from mitosis.client.parameters import group_reference, model, query
from mitosis.client.run_calls import RunCalls
from mitosis.contracts.http import Page
from mitosis.contracts.overlap import Overlap
from mitosis.contracts.schedules import (
    BackfillAnswer,
    BackfillSchedule,
    CreateSchedule,
    PauseSchedule,
    ResumeSchedule,
    ScheduleInfo,
    ScheduleQuery,
    TriggerAnswer,
    TriggerSchedule,
    UpdateSchedule,
)

ScheduleReference = UUID | str
"""Id, ``USERGROUP/NAME``, or the name of a schedule of the caller's own user group."""


class ScheduleCalls(RunCalls):
    """Create, list, show, change, pause, trigger, backfill and delete schedules."""

    async def create_schedule(self, job: JobReference, **fields: Any) -> ScheduleInfo:
        """Start runs of a stored job by time.

        Args:
            job: the reference of the job; the schedule is of its user group.
            fields: those of :class:`~mitosis.contracts.schedules.CreateSchedule`: exactly one of ``cron``,
                ``interval`` and ``calendar``; ``dry_run=True`` only returns the schedule and its next times.

        Raises:
            InvalidRequest: names the field that is wrong.
            AlreadyExists: the user group has a schedule with this name.
        """
        body = model(CreateSchedule, {"job": group_reference(job, "job"), **fields})
        return await self._api.model(ScheduleInfo, "POST", "/schedules", body)

    def schedules(
        self, *, job: str | None = None, group_name: str | None = None
    ) -> AsyncIterator[ScheduleInfo]:
        """Iterate over the schedules of the caller's user groups, by user group and name."""
        chosen = query(ScheduleQuery, job=job, group_name=group_name)
        return self._pages(Page[ScheduleInfo], "/schedules", chosen)

    async def schedule(self, schedule: ScheduleReference) -> ScheduleInfo:
        """Return a schedule with its next times."""
        return await self._get(ScheduleInfo, _path(schedule), {})

    async def update_schedule(self, schedule: ScheduleReference, **fields: Any) -> ScheduleInfo:
        """Change a schedule. Times from now on are those of the changed one.

        Args:
            schedule: its reference.
            fields: those of :class:`~mitosis.contracts.schedules.UpdateSchedule`; others stay.

        Raises:
            InvalidRequest: names the field that is wrong.
            Conflict: it was changed at the same time.
        """
        body = model(UpdateSchedule, fields)
        return await self._api.model(ScheduleInfo, "PATCH", _path(schedule), body)

    async def pause_schedule(
        self, schedule: ScheduleReference, note: str | None = None, *, drop: bool = False
    ) -> ScheduleInfo:
        """Start no runs at its times and of backfills until it is resumed.

        Times that pass are not made up for. What waits to start goes on waiting; with ``drop`` it ends.
        """
        body = PauseSchedule(note=note, drop=drop)
        return await self._post(ScheduleInfo, _path(schedule) + "/pause", body)

    async def resume_schedule(
        self, schedule: ScheduleReference, note: str | None = None
    ) -> ScheduleInfo:
        """Start runs at its times again, from now on, and those that have waited."""
        body = ResumeSchedule(note=note)
        return await self._post(ScheduleInfo, _path(schedule) + "/resume", body)

    async def trigger_schedule(
        self, schedule: ScheduleReference, overlap: Overlap | None = None
    ) -> TriggerAnswer:
        """Ask for a run of now, also of a paused schedule; :meth:`runs` has it when it has started.

        If it gets none, the schedule says why in ``without_run``.
        """
        body = TriggerSchedule(overlap=overlap)
        path = _path(schedule) + "/trigger"
        return await self._api.model(
            TriggerAnswer, "POST", path, body
        )  # not repeated: it may start two

    async def backfill_schedule(
        self,
        schedule: ScheduleReference,
        first: datetime,
        last: datetime,
        *,
        overlap: Overlap = Overlap.BUFFER_ALL,
        dry_run: bool = False,
    ) -> BackfillAnswer:
        """Ask for the runs of past times, both included. A time that has a run gets no second one.

        Raises:
            InvalidRequest: there is no such time, or the range ends in the future.
            TooLarge: there are too many.
        """
        body = BackfillSchedule(first=first, last=last, overlap=overlap, dry_run=dry_run)
        return await self._post(BackfillAnswer, _path(schedule) + "/backfill", body)

    async def delete_schedule(self, schedule: ScheduleReference) -> None:
        """Delete a schedule. Its runs stay, and running ones go on."""
        await self._api.call("DELETE", _path(schedule))


def _path(schedule: ScheduleReference) -> str:
    return f"/schedules/{group_reference(schedule, 'schedule')}"
