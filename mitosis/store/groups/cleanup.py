"""What the settlement of a task group waits for on its hosts (protocol P9)."""

from collections.abc import Mapping

from mitosis.store.pg.statements import load

AWAITED = load("groups/cleanup.sql")["awaited"]
CLEANUP_MARGIN_SECONDS = 600.0
"""A teardown that is owed or begun may take the timeouts of its host's hooks and this much longer (C-12)."""


def cleanup_parameters() -> Mapping[str, object]:
    """Return the parameters of :data:`AWAITED`."""
    return {"cleanup_margin": CLEANUP_MARGIN_SECONDS}
