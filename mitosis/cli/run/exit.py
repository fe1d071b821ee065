"""How `mitosis run` ends. A number never counts failures."""

from enum import IntEnum


class RunExit(IntEnum):
    OK = 0
    """Every task succeeded (or --detach: it was handed over)."""
    TASKS_FAILED = 1
    USAGE = 2
    """The command line, or an input, is not right."""
    COULD_NOT_RUN = 3
    """The setup hook failed on every host that may run it, or a host could not be cleaned."""
    UNREACHABLE = 4
    """The API cannot be reached."""
    CANCELLED = 5
    """Somebody else cancelled the group."""
    DEADLINE = 124
    """--deadline passed. As timeout(1)."""
    INTERRUPTED = 130
    """Ctrl-C: detached or cancelled; the last line says which."""
