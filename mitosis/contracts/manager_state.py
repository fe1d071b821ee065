"""The state of a host, derived from stored facts by one ordered list of rules.

Everything that shows a state reads it from here: the search attribute MitosisState and the details in
Temporal, the API, the commands and `explain`. The state is never stored.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mitosis.contracts.lifecycle import EnvironmentState, LeaseState, ManagerState


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagerFacts:
    """The facts about one host in PostgreSQL at one moment. Durations are seconds, computed there."""

    offline: bool
    """Its agent said goodbye, its loss was recorded, or it has never said hello."""
    silent_seconds: float | None
    """Since its last contact; None if it never had any."""
    host_lost_after_seconds: float
    """How long a host without a running lease clock may be silent: the setting of the deployment."""
    draining: bool
    lease_state: LeaseState | None = None
    """None: no lease that is not ENDED."""
    alive_in_seconds: float | None = None
    """Until ``alive_until`` of that lease; None while it is only offered."""
    lease_environment: EnvironmentState | None = None
    """The environment on it of the group that the lease is for."""
    tearing_down: bool = False
    """A teardown hook runs on it, for any group."""


def is_lost(facts: ManagerFacts) -> bool:
    """Return whether the host has been silent for long enough to be lost (protocol P4).

    A lease has its own clock, because a group may set ``host_lost_after``; without a lease the setting of
    the deployment applies.
    """
    if facts.alive_in_seconds is not None:
        return facts.alive_in_seconds <= 0
    return facts.silent_seconds is None or facts.silent_seconds >= facts.host_lost_after_seconds


def _executes(facts: ManagerFacts) -> bool:
    taken = facts.lease_state in (LeaseState.ACTIVE, LeaseState.ENDING)
    return taken and facts.lease_environment is EnvironmentState.READY


_RULES: Sequence[tuple[ManagerState, Callable[[ManagerFacts], bool]]] = (
    # An unreachable host does nothing, whichever lease is still recorded for it.
    (ManagerState.OFFLINE, lambda facts: facts.offline or is_lost(facts)),
    # The operator's decision explains why nothing is offered, with or without work left.
    (ManagerState.DRAINING, lambda facts: facts.draining),
    # A host makes room before it prepares for the group of its next lease (protocol P9).
    (ManagerState.CLEANUP, lambda facts: facts.tearing_down),
    (ManagerState.EXECUTING, _executes),
    # An offered lease counts too, even if the environment is ready: the host has not taken it yet.
    (ManagerState.PREPARING, lambda facts: facts.lease_state is not None),
)


def derived_manager_state(facts: ManagerFacts) -> ManagerState:
    """Return the state of the first rule that holds; IDLE if none does."""
    return next((state for state, holds in _RULES if holds(facts)), ManagerState.IDLE)
