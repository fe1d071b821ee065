"""What happens at a time of a schedule while a run of it has not ended. Standard library only."""

from enum import StrEnum


class Overlap(StrEnum):
    """What happens at a time of a schedule while a run of it has not ended."""

    SKIP = "skip"
    """No run starts."""
    BUFFER_ONE = "buffer_one"
    """One run starts when that one has ended, for the last of the times that have passed."""
    BUFFER_ALL = "buffer_all"
    """A run for each time starts, one after the other."""
    CANCEL_OTHER = "cancel_other"
    """That run is cancelled, with its cleanup; then the next one starts."""
    TERMINATE_OTHER = "terminate_other"
    """That run is cancelled without grace and without cleanup; then the next one starts."""
    ALLOW_ALL = "allow_all"
    """Runs overlap."""
