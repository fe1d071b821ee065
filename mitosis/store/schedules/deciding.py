"""What becomes of the starts of a schedule that wait, by their overlap policies. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from mitosis.contracts.overlap import Overlap

REPLACES = frozenset({Overlap.CANCEL_OTHER, Overlap.TERMINATE_OTHER})
NOT_ENDED = "a run of the schedule had not ended"
REPLACED = "a later time has taken its place while a run of the schedule had not ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A start that has not been carried out."""

    id: int
    nominal_time: datetime
    overlap: Overlap


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What to do now: at most one run starts, then the next decision follows."""

    start: Waiting | None = None
    skipped: Sequence[tuple[Waiting, str]] = ()
    """With the reasons."""
    replacing: Waiting | None = None
    """The start for which the runs that have not ended are cancelled, in the way of its policy."""


def decide(waiting: Sequence[Waiting], *, active: bool) -> Decision:
    """Decide about the starts, in the order in which they came.

    ``active``: a run of the schedule has not ended, other than those that may overlap.
    """
    free = next((one for one in waiting if one.overlap is Overlap.ALLOW_ALL), None)
    if free is not None:
        return Decision(start=free)
    replacing = [one for one in waiting if one.overlap in REPLACES]
    skipped = [(one, REPLACED) for one in replacing[:-1]]
    if not active:
        first = replacing[-1] if replacing else next(iter(waiting), None)
        return Decision(start=first, skipped=skipped)
    skipped += [(one, NOT_ENDED) for one in waiting if one.overlap is Overlap.SKIP]
    buffered = [one for one in waiting if one.overlap is Overlap.BUFFER_ONE]
    skipped += [(one, REPLACED) for one in buffered[:-1]]
    return Decision(skipped=skipped, replacing=replacing[-1] if replacing else None)
