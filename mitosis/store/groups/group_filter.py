"""Which task groups a list shows."""

from collections.abc import Sequence
from dataclasses import dataclass

from mitosis.contracts.lifecycle import TaskGroupState


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFilter:
    """All conditions hold. Empty = all the viewer may see."""

    states: Sequence[TaskGroupState] = ()
    settled: bool | None = None
    tags: Sequence[str] = ()
    """It has all of these."""
    labels: Sequence[str] = ()
    name: str | None = None
    """Exactly this name, or a pattern with ``*``."""
