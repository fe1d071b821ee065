"""Why an unfinished task is tried again, how often that may happen, and the way out: one line for users."""

from dataclasses import dataclass

from mitosis.contracts.outcome import LOST_ALONE, LOST_LIMIT

LOST = "its host, its agent or the zygote of its worker was lost while it ran"
WAY_OUT = "cancel the task group, or submit the task in another form, to end this"


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """What has been charged to a task so far."""

    exit_failures: int
    max_attempts: int
    crash_failures: int
    lost_count: int
    terminations: int


def repetition(counts: Counts) -> str | None:
    """Return the line; None if nothing has failed."""
    reasons = [*_reasons(counts)]
    return "; ".join([*reasons, WAY_OUT]) if reasons else None


def _reasons(counts: Counts) -> list[str]:
    found = []
    if counts.terminations:
        found.append(
            f"died of SIGTERM or SIGINT {_times(counts.terminations)} in a row: this is charged to nothing,"
            " the pause doubles up to 5 minutes, and the task ends as terminated when it has had"
            " its max_terminations of them"
        )
    if counts.lost_count >= LOST_ALONE:
        found.append(
            f"{LOST}, {_times(counts.lost_count)}: from now on it runs alone on its host;"
            " lost once more it ends as poison"
        )
    elif counts.lost_count:
        found.append(f"{LOST}, {_times(counts.lost_count)} of {LOST_LIMIT}")
    if counts.exit_failures:
        found.append(f"failed {_times(counts.exit_failures)}, of {counts.max_attempts} attempts")
    if counts.crash_failures:
        found.append(f"crashed {_times(counts.crash_failures)}: the second or third crash ends it")
    return found


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
