"""Default intervals of host liveness (protocol P4). The deployment's settings may change both."""

from datetime import timedelta

HOST_LOST_AFTER = timedelta(seconds=90)
"""A host silent for this long is lost; its tasks are requeued."""
SUSPECT_AFTER = timedelta(seconds=10)
"""A host silent for this long is offered nothing new; its tasks keep running."""
HOST_TAKES_WITHIN = timedelta(seconds=10)
"""A host that has not taken an activity by then is unreachable (protocol P6)."""
STUCK_AFTER = timedelta(seconds=30)
"""A lease that makes no progress for this long while work is claimable is ended (protocol P7)."""
API_STALE_SECONDS = 10.0
"""A heartbeat older than this means that no API is alive."""
