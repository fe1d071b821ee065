"""The garbage collector of processes that live long: the API, the control worker, the agent."""

import gc

_THRESHOLDS = (10_000, 20, 20)
"""Containers made before the young ones are searched. With the 700 of Python a tenth of the CPU time goes
there, since each task makes dozens that are all freed by counting references."""


def settle() -> None:
    """Search no more what is there now, and new objects far less often. Call it once all is imported."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)
