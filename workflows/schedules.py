"""Ensures the schedules of the table in Temporal (protocol P17): created, changed, paused and deleted there.

The row wins. What was changed by hand in Temporal is undone and noted. Any number of processes may do it.
Each looks at the row again after it has written to Temporal, so the last one to write has the last row.
Temporal only wakes us at the times; runs that are missed, asked for or held up are rows (ADR 0016).
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from datetime import timedelta
from itertools import pairwise
from uuid import UUID

from temporalio.client import (
    Client,
    Schedule,
    ScheduleActionStartWorkflow,
    ScheduleAlreadyRunningError,
    ScheduleCalendarSpec,
    ScheduleHandle,
    ScheduleIntervalSpec,
    ScheduleListDescription,
    ScheduleOverlapPolicy,
    SchedulePolicy,
    ScheduleRange,
    ScheduleSpec,
    ScheduleState,
    ScheduleUpdate,
    ScheduleUpdateInput,
)
from temporalio.common import SearchAttributePair, TypedSearchAttributes
from temporalio.service import RPCError, RPCStatusCode

from mitosis.contracts.calendars import Calendar
from mitosis.contracts.errors import DatabaseUnavailable, TemporalUnavailable
from mitosis.contracts.ids import as_uuid
from mitosis.contracts.schedule_control import (
    REFUSED,
    UNREADABLE,
    CarriedSchedule,
    ScheduledRunInput,
    UnreadableSchedule,
    times_digest,
    unreadable_text,
)
from mitosis.contracts.temporal_names import (
    CONTROL_TASK_QUEUE,
    SCHEDULE_PREFIX,
    scheduled_run_workflow_id,
    temporal_schedule_id,
)
from mitosis.jobs.schedule_times import calendars_of
from workflows.client import our_errors
from workflows.options import WORKFLOW_TASK_WITHIN
from workflows.ports import SchedulesPort
from workflows.visibility import KEYS

log = logging.getLogger(__name__)

RPC_TIMEOUT = timedelta(seconds=5)
FULL_CHECKS = 20
"""So many schedules are described whole in one reconcile, in turn; the list shows most of each."""
CATCH_UP = timedelta(minutes=1)
"""Of Temporal: when it comes back, one start for a schedule is enough, as PostgreSQL knows the others."""
CLOCKS = "the clocks go back soon, or have gone back"
MOST_OF_A_PROBLEM = 500


class Schedules:
    """The schedules of the table, and those of Temporal."""

    def __init__(self, client: Client, port: SchedulesPort) -> None:
        self._client = client
        self._port = port
        self._checked = 0
        self._to_describe: set[UUID] = set()

    async def ensure(self, schedule_id: UUID) -> None:
        """Make one schedule in Temporal what its row is now. A refusal of Temporal is noted with the row.

        One that Temporal has is described only if :meth:`differing` has found it: each end of a run asks.
        It is also described if its row has changed since: an earlier row may have been written.

        Raises:
            TemporalUnavailable, DatabaseUnavailable: try again later.
        """
        revision = None
        while (row := await self._row(schedule_id)) is not None:
            if row.revision == revision:
                break
            is_again, revision = revision is not None, row.revision
            if isinstance(row, UnreadableSchedule):
                await self._note_unreadable(row, row.reason)
            elif is_again or not row.is_settled or schedule_id in self._to_describe:
                await self._carry_or_note(row, is_again=is_again)
        else:
            await self._delete(schedule_id)
        self._to_describe.discard(schedule_id)

    async def _row(self, schedule_id: UUID) -> CarriedSchedule | UnreadableSchedule | None:
        return next(iter(await self._port.carried_schedules(schedule_id)), None)

    async def _carry_or_note(self, row: CarriedSchedule, *, is_again: bool) -> None:
        try:
            await self._carry(row, temporal_schedule(row), is_again=is_again)
        except RPCError as error:
            log.warning("schedule.refused", extra={"schedule": row.name})
            await self._port.note_problem(row, f"{REFUSED}{error.message}"[:MOST_OF_A_PROBLEM])
        except UNREADABLE as error:
            if isinstance(error, TemporalUnavailable | DatabaseUnavailable):
                raise
            await self._note_unreadable(row, unreadable_text(error)[:MOST_OF_A_PROBLEM])

    async def _note_unreadable(
        self, row: CarriedSchedule | UnreadableSchedule, reason: str
    ) -> None:
        """Show why this host cannot read a row, unless another one can: it has brought it to Temporal."""
        log.warning("schedule.unreadable", extra={"schedule": row.name, "reason": reason})
        if not row.is_carried:
            await self._port.note_problem(row, reason)

    async def differing(self) -> Sequence[UUID]:
        """Return the schedules of which row and counterpart differ or one is missing, and a few more in turn.

        Raises:
            TemporalUnavailable, DatabaseUnavailable: try again later.
        """
        with our_errors():
            found_there = await self._client.list_schedules(page_size=1000, rpc_timeout=RPC_TIMEOUT)
            listed = {one.id: one async for one in found_there}
        rows = {one.schedule_id: one for one in await self._port.carried_schedules()}
        ours = [as_uuid(one.removeprefix(SCHEDULE_PREFIX)) for one in listed if _is_ours(one)]
        found = [one for one in ours if one is not None and one not in rows]
        for number, row in enumerate(rows.values()):
            seen = listed.get(temporal_schedule_id(row.schedule_id))
            in_turn = (number - self._checked) % len(rows) < FULL_CHECKS
            if in_turn or _is_to_be_carried(row, seen):
                found.append(row.schedule_id)
            await asyncio.sleep(0)  # others may go on: there may be thousands
        self._checked = (self._checked + FULL_CHECKS) % max(len(rows), 1)
        self._to_describe.update(found)
        return found

    async def _carry(self, row: CarriedSchedule, wanted: Schedule, *, is_again: bool) -> None:
        """Make Temporal's schedule what the row is. A difference after we have written is not by hand."""
        handle = self._client.get_schedule_handle(temporal_schedule_id(row.schedule_id))
        with our_errors():
            found = await _described(handle)
            if found is None and not await self._create(row):
                found = await _described(handle)
            if found is not None and (what := await self._difference(found, row)) is not None:
                if not await self._is_current(row):
                    return  # another process has brought a later row
                await handle.update(_replace(wanted), rpc_timeout=RPC_TIMEOUT)
                is_noted = row.is_carried and what != CLOCKS
                if is_noted and not is_again:
                    log.warning("schedule.reverted", extra={"schedule": row.name, "what": what})
                    await self._port.note_reverted(row, what)
        if not row.is_carried or row.problem is not None:
            await self._port.note_carried(row)

    async def _is_current(self, row: CarriedSchedule) -> bool:
        now = await self._row(row.schedule_id)
        return now is not None and now.revision == row.revision

    async def _create(self, row: CarriedSchedule) -> bool:
        """Create the schedule; return False if another process has: it may have another row."""
        try:
            await self._client.create_schedule(
                temporal_schedule_id(row.schedule_id),
                temporal_schedule(row),
                memo={"schedule": row.name, "user_group": row.user_group, "job": row.job},
                search_attributes=_attributes(row),
                rpc_timeout=RPC_TIMEOUT,
            )
        except ScheduleAlreadyRunningError:
            return False
        log.info("schedule.created", extra={"schedule": row.name})
        return True

    async def _difference(self, found: Schedule, row: CarriedSchedule) -> str | None:
        what = difference(found, row)
        if what is None and await self._given(found) != _input(row):
            return "its action was changed"
        return what

    async def _given(self, found: Schedule) -> ScheduledRunInput | None:
        """Return with what the workflow of a schedule is started; None: with something else."""
        if not isinstance(found.action, ScheduleActionStartWorkflow):
            return None
        try:
            (given,) = await self._client.data_converter.decode(
                found.action.args,  # payloads, as it was described
                [ScheduledRunInput],
            )
        except Exception:  # noqa: BLE001 a payload that is not ours
            return None
        return given if isinstance(given, ScheduledRunInput) else None

    async def _delete(self, schedule_id: UUID) -> None:
        handle = self._client.get_schedule_handle(temporal_schedule_id(schedule_id))
        with our_errors():
            try:
                await handle.delete(rpc_timeout=RPC_TIMEOUT)
            except RPCError as error:
                if error.status is not RPCStatusCode.NOT_FOUND:
                    raise


def temporal_schedule(row: CarriedSchedule) -> Schedule:
    """Return the schedule that Temporal is to have."""
    name = f"{row.user_group}/{row.job}"
    return Schedule(
        action=ScheduleActionStartWorkflow(
            "ScheduledRunWorkflow",
            args=[_input(row)],
            id=scheduled_run_workflow_id(row.schedule_id),
            task_queue=CONTROL_TASK_QUEUE,
            task_timeout=WORKFLOW_TASK_WITHIN,
            memo={"schedule": row.name, "user_group": row.user_group, "job": row.job},
            typed_search_attributes=_attributes(row),
            static_summary=f"Run of {name} by the schedule {row.name}",
        ),
        spec=spec_of(row),
        policy=SchedulePolicy(
            overlap=ScheduleOverlapPolicy.ALLOW_ALL, catchup_window=min(row.catch_up, CATCH_UP)
        ),
        state=ScheduleState(paused=row.paused, note=_note(row)),
    )


def spec_of(row: CarriedSchedule) -> ScheduleSpec:
    """Return when it starts runs, as Temporal gets it."""
    timing = row.timing
    calendars, zone = calendars_of(timing, row.now)
    interval = timing.interval
    return ScheduleSpec(
        calendars=[_calendar_spec(calendar, timing.text()) for calendar in calendars],
        intervals=[]
        if interval is None
        else [ScheduleIntervalSpec(every=interval.every, offset=interval.offset or None)],
        start_at=timing.start_at,
        end_at=timing.end_at,
        jitter=row.jitter or None,
        time_zone_name=zone,
    )


def difference(found: Schedule, row: CarriedSchedule) -> str | None:
    """Return what a schedule in Temporal has that its row has not; None if they agree."""
    wanted = temporal_schedule(row)
    differences = []
    if found.state.paused != wanted.state.paused:
        differences.append("it was paused" if found.state.paused else "it was resumed")
    if (found.state.note or None) != wanted.state.note:
        differences.append(f"its note was {found.state.note!r:.200}")
    if canonical(found.spec) != canonical(wanted.spec):
        differences.append("its times were changed" if _by_hand(found.spec, row) else CLOCKS)
    if _policy(found.policy) != _policy(wanted.policy) or found.state.limited_actions:
        differences.append("its policies were changed")
    if not _same_action(found, wanted):
        differences.append("its action was changed")
    return "; ".join(differences) or None


def shows_a_change(row: CarriedSchedule, seen: ScheduleListDescription) -> bool:
    """Return whether the list of schedules shows another pause, note or time than the row."""
    if seen.schedule is None:
        return True
    state = seen.schedule.state
    wanted = (row.paused, _note(row), canonical(spec_of(row)))
    return (state.paused, state.note or None, canonical(seen.schedule.spec)) != wanted


def canonical(spec: ScheduleSpec) -> object:
    """Return a spec in a form in which equal ones are equal."""
    return (
        sorted(_numbers_of(each) for each in spec.calendars),
        sorted((each.every, each.offset or timedelta(0)) for each in spec.intervals),
        list(spec.cron_expressions),
        len(spec.skip),
        spec.start_at,
        spec.end_at,
        spec.jitter or timedelta(0),
        spec.time_zone_name or "UTC",
    )


def _by_hand(spec: ScheduleSpec, row: CarriedSchedule) -> bool:
    """Return whether the times were changed in Temporal, and not for a change of the clocks."""
    text = row.timing.text()
    return not spec.calendars or any(one.comment != text for one in spec.calendars)


def _is_to_be_carried(
    row: CarriedSchedule | UnreadableSchedule, seen: ScheduleListDescription | None
) -> bool:
    """Return whether Temporal has no schedule for a row, or another one; False: it cannot have it."""
    if isinstance(row, UnreadableSchedule) or row.is_refused:
        return False
    try:
        return seen is None or not row.is_carried or shows_a_change(row, seen)
    except UNREADABLE:
        return True  # noted then


def _is_ours(schedule_id: str) -> bool:
    return schedule_id.startswith(SCHEDULE_PREFIX)


def _input(row: CarriedSchedule) -> ScheduledRunInput:
    return ScheduledRunInput(schedule_id=row.schedule_id, times=times_digest(row.timing))


def _note(row: CarriedSchedule) -> str:
    about = f"{row.user_group}/{row.name} runs {row.job}"
    return about if row.note is None else f"{about}: {row.note}"


def _attributes(row: CarriedSchedule) -> TypedSearchAttributes:
    return TypedSearchAttributes(
        [
            SearchAttributePair(KEYS["MitosisJob"], row.job),
            SearchAttributePair(KEYS["MitosisGroup"], row.user_group),
        ]
    )


def _same_action(found: Schedule, wanted: Schedule) -> bool:
    one, other = found.action, wanted.action
    return (
        isinstance(one, ScheduleActionStartWorkflow)
        and isinstance(other, ScheduleActionStartWorkflow)
        and (one.workflow, one.id, one.task_queue) == (other.workflow, other.id, other.task_queue)
    )


def _policy(policy: SchedulePolicy) -> object:
    return policy.overlap, policy.catchup_window, policy.pause_on_failure


def _calendar_spec(calendar: Calendar, comment: str) -> ScheduleCalendarSpec:
    return ScheduleCalendarSpec(
        second=_ranges(calendar.second),
        minute=_ranges(calendar.minute),
        hour=_ranges(calendar.hour),
        day_of_month=_ranges(calendar.day_of_month),
        month=_ranges(calendar.month),
        year=_ranges(calendar.year),
        day_of_week=_ranges(calendar.day_of_week),
        comment=comment,
    )


def _ranges(numbers: Sequence[int]) -> Sequence[ScheduleRange]:
    """Return numbers in rising order as ranges."""
    if not numbers:
        return ()
    ends = [one for one, other in pairwise(numbers) if other != one + 1] + [numbers[-1]]
    starts = [numbers[0]] + [other for one, other in pairwise(numbers) if other != one + 1]
    return [ScheduleRange(one, other) for one, other in zip(starts, ends, strict=True)]


def _numbers_of(calendar: ScheduleCalendarSpec) -> tuple[tuple[int, ...], ...]:
    fields = (
        calendar.second,
        calendar.minute,
        calendar.hour,
        calendar.day_of_month,
        calendar.month,
        calendar.year,
        calendar.day_of_week,
    )
    return tuple(
        tuple(sorted({n for each in field for n in range(each.start, each.end + 1, each.step)}))
        for field in fields
    )


async def _described(handle: ScheduleHandle) -> Schedule | None:
    try:
        return (await handle.describe(rpc_timeout=RPC_TIMEOUT)).schedule
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            return None
        raise


def _replace(wanted: Schedule) -> Callable[[ScheduleUpdateInput], ScheduleUpdate]:
    def update(_: ScheduleUpdateInput) -> ScheduleUpdate:
        return ScheduleUpdate(wanted)

    return update
