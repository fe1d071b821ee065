"""`mitosis job schedule trigger`: the run that was asked for, or why there is none."""

from collections.abc import Iterator
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID, uuid4

from mitosis.cli.job import schedule as commands
from mitosis.contracts.schedules import WithoutRun

ASKED = datetime(2026, 11, 28, tzinfo=UTC)


class Answers:
    """What the API says at each look."""

    def __init__(self, *without: WithoutRun | None, run: UUID | None = None) -> None:
        self.without = list(without)
        self.run = run

    def runs(self, **_: Any) -> Iterator[Any]:
        if self.run is not None and not self.without:
            yield SimpleNamespace(nominal_time=ASKED, run_id=self.run, created_at=ASKED)

    def schedule(self, _: UUID) -> Any:
        return SimpleNamespace(without_run=self.without.pop(0))


def appeared(answers: Answers) -> tuple[UUID | None, str | None]:
    found = SimpleNamespace(group_name="g", name="s", schedule_id=uuid4())
    return commands._appeared(cast("Any", answers), cast("Any", found), ASKED)


def test_a_start_that_was_left_out_is_answered_with_its_reason() -> None:
    earlier = WithoutRun(nominal_time=datetime(2026, 11, 27, tzinfo=UTC), reason="of yesterday")
    this = WithoutRun(nominal_time=ASKED, reason="a run had not ended")
    assert appeared(Answers(None, earlier, this)) == (None, "a run had not ended")
    run = uuid4()
    assert appeared(Answers(earlier, run=run)) == (run, None)
