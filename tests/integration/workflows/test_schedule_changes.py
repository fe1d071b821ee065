"""What the control worker makes of the row of a schedule in a real Temporal."""

import uuid
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from temporalio.client import (
    Client,
    ScheduleActionStartWorkflow,
    ScheduleIntervalSpec,
    ScheduleSpec,
)

from mitosis.contracts.overlap import Overlap
from mitosis.contracts.schedule_control import CarriedSchedule, UnreadableSchedule, times_digest
from mitosis.contracts.schedules import Timing
from mitosis.contracts.temporal_names import temporal_schedule_id
from workflows import schedules
from workflows.client import TemporalAddress
from workflows.namespace import ensure_namespace
from workflows.schedules import Schedules


class OneRow:
    """The port of one row, in memory."""

    def __init__(self) -> None:
        self.row = CarriedSchedule(
            schedule_id=uuid4(),
            name="s",
            user_group="g",
            job="j",
            timing=Timing(cron="@daily"),
            overlap=Overlap.SKIP,
            jitter=timedelta(0),
            catch_up=timedelta(days=1),
            paused=True,
            revision=1,
            carried_revision=0,
            now=datetime.now(UTC),
        )
        self.reverted: list[str] = []

    def change(self, **fields: Any) -> None:
        self.row = self.row.model_copy(update=fields)

    async def carried_schedules(self, schedule_id: UUID | None = None) -> Sequence[CarriedSchedule]:
        return [self.row]

    async def note_carried(self, carried: CarriedSchedule) -> None:
        self.change(carried_revision=carried.revision, problem=None)

    async def note_problem(
        self, carried: CarriedSchedule | UnreadableSchedule, problem: str
    ) -> None:
        self.change(problem=problem)

    async def note_reverted(self, carried: CarriedSchedule, what: str) -> None:
        self.reverted.append(what)

    async def due_schedules(self) -> Sequence[UUID]:
        return []

    async def take_schedule_turn(self, schedule_id: UUID) -> bool:
        return False


@pytest.fixture
async def client(temporal_server: str) -> Client:
    found = await TemporalAddress(temporal_server, f"test-{uuid.uuid4().hex[:8]}").connect()
    await ensure_namespace(found)
    return found


async def test_a_schedule_that_another_process_has_created_from_an_earlier_row_gets_this_one(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = OneRow()
    await Schedules(client, port).ensure(port.row.schedule_id)
    handle = client.get_schedule_handle(temporal_schedule_id(port.row.schedule_id))
    port.change(timing=Timing(cron="@hourly"), revision=2, note="other times")
    seen = iter([None])
    real = schedules._described

    async def described(of: Any) -> Any:
        return next(seen, await real(of))

    monkeypatch.setattr(schedules, "_described", described)
    await Schedules(client, port).ensure(port.row.schedule_id)
    assert (await handle.describe()).schedule.state.note == "g/s runs j: other times"
    assert port.row.carried_revision == 2

    port.change(timing=Timing(cron="30 * * * *", time_zone="Asia/Kolkata"), revision=3)
    await Schedules(client, port).ensure(port.row.schedule_id)
    action = (await handle.describe()).schedule.action
    assert isinstance(action, ScheduleActionStartWorkflow)
    assert times_digest(port.row.timing).encode() in action.args[0].data, "same instants in UTC"


async def test_a_schedule_that_temporal_refuses_shows_why_and_is_not_tried_for_ever(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = OneRow()
    monkeypatch.setattr(schedules, "FULL_CHECKS", 0)
    known = Schedules(client, port)
    refused = ScheduleSpec(intervals=[ScheduleIntervalSpec(every=timedelta(milliseconds=1))])
    with monkeypatch.context() as patch:
        patch.setattr(schedules, "spec_of", lambda _: refused)
        await known.ensure(port.row.schedule_id)
    assert str(port.row.problem).startswith("Temporal: "), port.row.problem
    assert await known.differing() == []
    port.change(revision=2, problem=None)  # as the store has it for another revision
    assert await known.differing() == [port.row.schedule_id]
    await known.ensure(port.row.schedule_id)
    assert (port.row.carried_revision, port.row.problem) == (2, None)
