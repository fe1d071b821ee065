"""What moving hosts between task groups has cost, and what keeping environments has saved."""

from pydantic import BaseModel, ConfigDict


class SwitchingCosts(BaseModel):
    """Sums over all leases of one task group, or of one host, in seconds of host time."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    setups: int = 0
    """That ended well."""
    setup_seconds: float = 0.0
    teardowns: int = 0
    teardown_seconds: float = 0.0
    drains: int = 0
    """Leases that were ended for another task group."""
    drain_seconds: float = 0.0
    """The part of these ends in which workers had nothing to do: with n workers 1 - 1/(1 + 1/2 + … + 1/n) of
    the time from the decision to the end of the lease.
    """
    lost_seconds: float = 0.0
    """Setups, teardowns and drains together."""
    returns: int = 0
    """Leases that used an environment which an earlier one had left on the host."""
    saved_seconds: float = 0.0
    """For each of them, the mean duration of that setup on that host when the lease ended."""
