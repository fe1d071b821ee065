"""Failures by reason: what has one reason, and that the table fits and steers no terminal."""

from datetime import UTC, datetime
from uuid import UUID

import pytest

from mitosis.cli.follow.failures import REASONS_SHOWN, Failures, table
from mitosis.contracts.http import TaskInfo
from mitosis.contracts.lifecycle import TaskState

NOBODY = UUID(int=0)


def failed(number: int, line: str, **more: object) -> TaskInfo:
    return TaskInfo.model_validate(
        {
            "task_id": number,
            "task_uuid": NOBODY,
            "task_group_id": NOBODY,
            "state": TaskState.FAILED,
            "attempt": 1,
            "spec": {},
            "kind": "exit_code",
            "exit_code": 1,
            "manager_name": "h1",
            "created_at": datetime.now(UTC),
            "detail": {"stderr": f"noise\n{line}\n", "message": "exit code 1"},
            **more,
        }
    )


def collected(*tasks: TaskInfo) -> Failures:
    failures = Failures()
    for task in tasks:
        failures.add(task)
    return failures


def test_numbers_addresses_and_paths_make_no_other_reason() -> None:
    one = collected(
        failed(1, "cannot read /data/a7 at 0xdeadbeef, line 12"),
        failed(2, "cannot read /tmp/other at 0x12345678, line 9"),
        failed(3, "no space left"),
    )
    first, second = one.rows()
    assert (first.tasks, second.tasks) == ([1, 2], [3])
    assert one.in_one_line().startswith("2x exit 1: cannot read /data/a7")


def test_an_ending_that_says_all_is_not_said_twice() -> None:
    silent = failed(1, "", detail={"stderr": "", "message": "exit code 1"})
    (reason,) = collected(silent).rows()
    assert (reason.ending, reason.line) == ("exit 1", "")


@pytest.mark.parametrize("width", [80, 140])
@pytest.mark.parametrize("line", ["\x1b[2J\x1b]0;mine\x07", "漢字" * 60, "a\tb" * 50, "x" * 300])
def test_a_row_fits_and_steers_no_terminal(width: int, line: str) -> None:
    shown = table(collected(failed(1, line)).rows(), width)
    assert max(len(row) + row.count("漢") + row.count("字") for row in shown) <= width
    assert all(char.isprintable() for char in "".join(shown))


def test_many_reasons_end_in_a_count() -> None:
    endings = [failed(n, "", exit_code=n, detail={}) for n in range(1, REASONS_SHOWN + 4)]
    assert table(collected(*endings).rows(), 80)[-1] == "… and 3 tasks with 3 other reasons"
