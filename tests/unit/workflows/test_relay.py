"""Rows of the outbox become pokes."""

from uuid import UUID

from mitosis.contracts.control import (
    Poke,
)
from workflows.relay import by_subject

GROUP, OTHER, HOST = UUID(int=1), UUID(int=2), UUID(int=3)


def test_rows_for_one_subject_are_one_poke() -> None:
    rows = [
        Poke(id=1, kind="task_group", subject=GROUP),
        Poke(id=2, kind="manager", subject=GROUP),
        Poke(id=3, kind="task_group", subject=GROUP),
        Poke(id=4, kind="scheduler"),
    ]
    assert by_subject(rows) == {
        ("task_group", GROUP): [1, 3],
        ("manager", GROUP): [2],
        ("scheduler", None): [4],
    }
