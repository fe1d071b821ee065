"""What `mitosis group wait` makes of a group."""

from datetime import timedelta
from typing import Any

import pytest

from mitosis.cli.exit import ExitStatus
from mitosis.cli.group.wait import ended, progress_text, wait_exit_of
from tests.support.infos import NOON, group


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"result": "success", "state": "complete", "settled": True}, ExitStatus.OK),
        ({"result": "tasks_failed"}, ExitStatus.TASKS_FAILED),
        ({"result": "setup_failed"}, ExitStatus.SETUP_FAILED),
        ({"result": "teardown_degraded"}, ExitStatus.TEARDOWN_DEGRADED),
        ({"result": "cancelled"}, ExitStatus.CANCELLED),
        ({"state": "cancelled"}, ExitStatus.CANCELLED),
        ({"state": "complete"}, ExitStatus.TASKS_FAILED),
        ({"state": "complete", "tasks_failed": 0}, ExitStatus.OK),
    ],
)
def test_the_exit_status_of_wait_is_the_result(changes: dict[str, Any], status: ExitStatus) -> None:
    assert wait_exit_of(group(**changes)) is status


def test_complete_comes_before_settled() -> None:
    complete = group(state="complete")
    assert ended(complete, "complete")
    assert not ended(complete, "settled")
    assert not ended(group(state="closed"), "complete")
    assert ended(group(state="cancelled", settled=True), "settled")


def test_progress_is_one_line() -> None:
    text = progress_text(
        group(
            tasks_per_second=123.456,
            estimated_completion_at=NOON + timedelta(seconds=75),
            waiting_for="nothing",
        ),
        NOON.timestamp(),
    )
    assert text == (
        "squares: open, 5 of 8 completed (4 succeeded, 1 failed), 123/s, about 1m15s left, nothing"
    )
