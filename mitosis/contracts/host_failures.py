"""What a host can fail at for one task group, and how long the pause before the next try is (protocol P7).

Standard library only. ``docs/when-things-die.md`` shows these numbers in its table of repetitions.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

QUARANTINE_AFTER = 5
"""So many different tasks in a row fail on a host before it is suspected (the default of the setting)."""


class HostFailureKind(StrEnum):
    """What failed on a host for a task group."""

    SETUP_FAILED = "setup_failed"
    """The command of the setup hook failed (C-30)."""
    UNREACHABLE = "unreachable"
    """It did not take an offer within ``schedule_to_start``."""
    WORKERS_NOT_STARTED = "workers_not_started"
    """It cannot start workers."""
    NO_PROGRESS = "no_progress"
    """Its lease made no progress while work was claimable."""
    TASKS_FAILED = "tasks_failed"
    """The last tasks that ended there have failed, and no other host could try them (C-33)."""
    SUSPECTED = "suspected"
    """So many tasks failed there that some are tried elsewhere before more are given to it (C-33)."""
    QUARANTINED = "quarantined"
    """Tasks that failed there succeeded elsewhere (C-33)."""


@dataclass(frozen=True, slots=True)
class Pause:
    """A pause that doubles with every failure in a row."""

    first_seconds: float
    longest_seconds: float


PAUSES: Mapping[HostFailureKind, Pause | None] = {
    HostFailureKind.SETUP_FAILED: None,
    HostFailureKind.UNREACHABLE: Pause(10, 300),
    HostFailureKind.WORKERS_NOT_STARTED: Pause(10, 600),
    HostFailureKind.NO_PROGRESS: Pause(30, 600),
    HostFailureKind.QUARANTINED: Pause(300, 3600),
}
"""None: not tried again after any time, only after a new incarnation, a changed hook or a verb (C-30)."""
