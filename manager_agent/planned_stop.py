"""The record that this process stops in order: such an ending charges no task (protocol P5).

It is on disk before anything is stopped. The hello of the next process carries it and, once that is
answered, it is forgotten.
"""

from contextlib import suppress
from pathlib import Path

from mitosis.execution.identity import write_durably

_FILE = "planned-stop"


class PlannedStop:
    """The file in the state folder of an agent; it holds the incarnation of the process that stopped."""

    def __init__(self, state_dir: Path) -> None:
        self._path = state_dir / _FILE

    def record(self, incarnation: int) -> None:
        """Write it durably. A full disk costs only this: the ending then counts as unplanned."""
        with suppress(OSError):
            write_durably(self._path, str(incarnation).encode())

    def incarnation(self) -> int | None:
        """Return the incarnation of the process that stopped in order; None if the last one did not."""
        try:
            found = int(self._path.read_text())
        except (OSError, ValueError):
            return None
        return found if found > 0 else None

    def forget(self) -> None:
        """Remove the record: PostgreSQL has applied it."""
        self._path.unlink(missing_ok=True)
