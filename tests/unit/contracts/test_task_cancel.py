"""A filter of tasks is refused where it can choose none."""

import pytest

from mitosis.contracts.errors import InvalidRequest
from mitosis.contracts.task_cancel import TaskFilter


def test_priorities_that_exclude_each_other_are_refused() -> None:
    with pytest.raises(InvalidRequest, match=r"^max_priority: no priority is between 5 and 1"):
        TaskFilter(min_priority=5, max_priority=1)


@pytest.mark.parametrize(("least", "most"), [(1, 1), (-1, 1), (None, 1), (5, None)])
def test_other_priorities_are_a_filter(least: int | None, most: int | None) -> None:
    chosen = TaskFilter(min_priority=least, max_priority=most)
    assert (chosen.min_priority, chosen.max_priority) == (least, most)
