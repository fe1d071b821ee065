"""One schedule in Temporal: what it costs, if it cannot be read, and if it changes meanwhile."""

from datetime import UTC, datetime, timedelta
from typing import Any, cast
from uuid import UUID, uuid4

import pytest
from temporalio.client import Client, Schedule

from mitosis.contracts.overlap import Overlap
from mitosis.contracts.schedule_control import REFUSED, CarriedSchedule, UnreadableSchedule
from mitosis.contracts.schedules import Timing
from workflows import schedules
from workflows.ports import SchedulesPort
from workflows.schedules import Schedules, temporal_schedule


def row_of(**fields: Any) -> CarriedSchedule:
    known: dict[str, Any] = {
        "schedule_id": uuid4(),
        "name": "s",
        "user_group": "g",
        "job": "j",
        "timing": Timing(cron="@daily"),
        "overlap": Overlap.SKIP,
        "jitter": timedelta(0),
        "catch_up": timedelta(days=1),
        "paused": False,
        "revision": 1,
        "carried_revision": 1,
        "now": datetime.now(UTC),
    }
    return CarriedSchedule(**{**known, **fields})


class Temporal:
    """Rows, and a server that counts what it is asked for."""

    def __init__(self, *rows: CarriedSchedule | UnreadableSchedule) -> None:
        self.rows = {one.schedule_id: one for one in rows}
        self.problems: dict[UUID, str] = {}
        self.reverted: list[str] = []
        self.updates = 0
        self.deleted = 0
        self.held: Schedule | None = None
        """As it was updated last."""

    @property
    def schedules(self) -> Schedules:
        return Schedules(cast("Client", self), cast("SchedulesPort", self))

    async def carried_schedules(self, schedule_id: UUID | None = None) -> Any:
        return [one for key, one in self.rows.items() if schedule_id in (None, key)]

    async def note_problem(self, row: Any, problem: str) -> None:
        self.problems[row.schedule_id] = problem

    async def note_carried(self, row: Any) -> None:
        pass

    async def note_reverted(self, row: Any, what: str) -> None:
        self.reverted.append(what)

    async def decode(self, given: Any, _: Any) -> Any:
        return given

    @property
    def data_converter(self) -> Any:
        return self

    def get_schedule_handle(self, _: str) -> Any:
        return self

    async def list_schedules(self, **_: Any) -> Any:
        async def nothing() -> Any:
            return
            yield

        return nothing()

    async def update(self, updater: Any, **_: Any) -> None:
        self.updates += 1
        self.held = updater(None).schedule

    async def delete(self, **_: Any) -> None:
        self.deleted += 1


async def test_a_row_that_this_host_cannot_read_shows_why_and_holds_up_no_other() -> None:
    unread = UnreadableSchedule(schedule_id=uuid4(), name="u", revision=1, reason="of old")
    of_mars = row_of(timing=Timing(cron="@daily", time_zone="Mars/Base"), carried_revision=0)
    good = row_of(carried_revision=0)
    there = Temporal(unread, of_mars, good)
    found = await there.schedules.differing()
    assert set(found) == {unread.schedule_id, of_mars.schedule_id, good.schedule_id}
    for bad in (unread, of_mars):
        await there.schedules.ensure(bad.schedule_id)
    assert there.problems[unread.schedule_id] == "of old"
    assert "Mars/Base" in there.problems[of_mars.schedule_id]
    assert (there.updates, there.deleted) == (0, 0)
    await there.schedules.ensure(uuid4())
    assert there.deleted == 1, "no row"


async def test_what_one_host_cannot_read_another_host_brings_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Neither undoes what the other has noted, for ever."""
    monkeypatch.setattr(schedules, "FULL_CHECKS", 0)
    row = row_of(carried_revision=0, problem="its times cannot be computed: no data")

    async def describe(_: Any) -> Schedule:
        return temporal_schedule(row_of(schedule_id=row.schedule_id, note="before"))

    monkeypatch.setattr(schedules, "_described", describe)
    there = Temporal(row)
    assert await there.schedules.differing() == [row.schedule_id]
    await there.schedules.ensure(row.schedule_id)
    assert there.updates == 1
    refused = row_of(carried_revision=0, problem=f"{REFUSED}no")
    assert await Temporal(refused).schedules.differing() == []
    of_mars = row_of(timing=Timing(cron="@daily", time_zone="Mars/Base"))
    known: dict[str, Any] = {"name": "u", "revision": 2, "carried_revision": 2, "reason": "old"}
    unread = UnreadableSchedule(schedule_id=uuid4(), **known)
    there = Temporal(of_mars, unread)
    for one in await there.schedules.differing():
        await there.schedules.ensure(one)
    await there.schedules.ensure(unread.schedule_id)
    assert there.problems == {}


async def test_the_end_of_a_run_asks_temporal_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    described = 0

    async def describe(_: Any) -> Schedule | None:
        nonlocal described
        described += 1
        return temporal_schedule(row)

    monkeypatch.setattr(schedules, "_described", describe)
    row = row_of()
    there = Temporal(row)
    ours = there.schedules
    await ours.ensure(row.schedule_id)
    assert described == 0
    assert await ours.differing() == [row.schedule_id], "it is looked at in turn"
    await ours.ensure(row.schedule_id)
    assert described == 1


async def test_a_row_that_has_changed_meanwhile_is_not_brought_to_temporal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another process has brought the later row: what it wrote is no change by hand."""
    before = row_of(note="before")
    after = before.model_copy(update={"note": "after", "revision": 2, "carried_revision": 2})
    there = Temporal(before)

    async def describe(_: Any) -> Schedule | None:
        there.rows[before.schedule_id] = after
        return temporal_schedule(after)

    monkeypatch.setattr(schedules, "_described", describe)
    ours = there.schedules
    await ours.differing()
    await ours.ensure(before.schedule_id)
    assert (there.updates, there.reverted) == (0, [])


async def test_an_earlier_row_that_was_written_last_is_replaced_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another process has brought the later row between our look and our write: nobody did it by hand."""
    second = row_of(note="second", revision=2)
    third = second.model_copy(update={"note": "third", "revision": 3, "carried_revision": 3})

    class Both(Temporal):
        async def update(self, updater: Any, **given: Any) -> None:
            self.rows[second.schedule_id] = third
            await super().update(updater, **given)

    there = Both(second)
    there.held = temporal_schedule(row_of(schedule_id=second.schedule_id))

    async def describe(_: Any) -> Schedule | None:
        return there.held

    monkeypatch.setattr(schedules, "_described", describe)
    await there.schedules.ensure(second.schedule_id)
    assert there.held == temporal_schedule(third)
    assert (there.updates, there.reverted) == (2, [])
