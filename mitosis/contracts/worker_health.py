"""The health of the registration of a worker service, from its times (C-20). Standard library only.

``mitosis/store/registry/health.sql`` is the same definition for statements; a test compares both.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

HEALTHY_SECONDS = 120
"""A heartbeat that is older does not count."""
HEARTBEAT_SECONDS = 30.0
"""How often a worker service sends a heartbeat."""
SILENCE_SECONDS = 600.0
"""How long it may be silent by default, before its registration is over."""
LEAST_SILENCE_SECONDS = 10.0


class WorkerHealth(StrEnum):
    """Computed whenever it is read; no process stores it."""

    REGISTERED = "registered"
    """It has not sent a heartbeat yet."""
    HEALTHY = "healthy"
    UNHEALTHY = "unhealthy"
    """Its last heartbeat is older than two minutes."""
    DISCONNECTED = "disconnected"
    """Its registration has ended, or it has been silent for too long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrationTimes:
    """The times that decide the health of a registration."""

    last_heartbeat_at: datetime | None
    alive_until: datetime
    """Its last contact, the registration or a heartbeat, and its ``silence_seconds``."""
    unregistered_at: datetime | None = None


def worker_health(times: RegistrationTimes, now: datetime) -> WorkerHealth:
    """Return the health at ``now``."""
    if times.unregistered_at is not None or now >= times.alive_until:
        return WorkerHealth.DISCONNECTED
    if times.last_heartbeat_at is None:
        return WorkerHealth.REGISTERED
    if now - times.last_heartbeat_at > timedelta(seconds=HEALTHY_SECONDS):
        return WorkerHealth.UNHEALTHY
    return WorkerHealth.HEALTHY
