"""How long a host stays with a task group: bounds of the deployment and of single task groups (C-31, C-35).

The durations themselves follow from what it costs to move a host, as measured, within these bounds.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Annotated

from pydantic import AfterValidator, ConfigDict

from mitosis.contracts.checked_model import CheckedModel
from mitosis.contracts.duration import Duration
from mitosis.contracts.errors import InvalidRequest

LONGEST = timedelta(days=30)
MOVES_PER_HOUR = 6
"""Contested ends of leases of one host in any hour, unless the deployment sets another number (C-36)."""
STARVE_AFTER = timedelta(days=1)
"""A task group with claimable work and no host for so long goes before all, unless the deployment sets
another time (C-31)."""
PAIRS = (("lease_duration", "longest_lease"), ("idle_threshold", "longest_idle"))
"""The fields that bound one duration: its least and its greatest value."""


def _bounded(duration: timedelta) -> timedelta:
    if not timedelta(0) <= duration <= LONGEST:
        raise ValueError(f"must be from 0 seconds to {LONGEST.days} days")
    return duration


LeaseTime = Annotated[Duration, AfterValidator(_bounded)]


class LeaseSettings(CheckedModel):
    """Bounds of one task group. A field that is left out or ``null`` has the value of the deployment."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    lease_duration: LeaseTime | None = None
    """For at least this long a host stays with the task group while others go first."""
    longest_lease: LeaseTime | None = None
    """For at most this long, also where moving the host costs much."""
    idle_threshold: LeaseTime | None = None
    """For at least this long a host without work is kept from all other task groups."""
    longest_idle: LeaseTime | None = None
    """For at most this long, also where setup and teardown take longer."""
    preemption_grace: LeaseTime | None = None
    """When another task group takes a host: so long the host keeps claimed tasks that have not started."""

    def values(self) -> Mapping[str, float | None]:
        """Return the settings in seconds, by field."""
        own: Mapping[str, timedelta | None] = {
            name: getattr(self, name) for name in type(self).model_fields
        }
        return {
            name: None if given is None else given.total_seconds() for name, given in own.items()
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseTerms:
    """The bounds in effect: those of a task group, or of the deployment. Seconds."""

    lease_duration: float = 3600.0
    longest_lease: float = 14_400.0
    """Least and greatest time for which a lease is safe from task groups that go first (S002-158)."""
    idle_threshold: float = 180.0
    longest_idle: float = 600.0
    """Least and greatest time for which a lease without work is safe from all task groups (C-35).

    Where a least value is above the greatest, which a deployment can bring about that is started with other
    bounds after those of a task group were checked, the greatest holds.
    """
    preemption_grace: float = 300.0
    """From the end of a lease that has work until its tasks are asked back (S000-140)."""

    def affinity(self, seconds: float) -> float:
        """Return the duration of a lease that is closest to so many seconds."""
        return min(max(seconds, self.lease_duration), self.longest_lease)

    def idle(self, seconds: float) -> float:
        """Return the idle threshold that is closest to so many seconds."""
        return min(max(seconds, self.idle_threshold), self.longest_idle)

    @property
    def least_idle(self) -> float:
        """The least idle threshold that can hold."""
        return min(self.idle_threshold, self.longest_idle)

    def shown(self) -> LeaseSettings:
        """Return the same bounds as settings."""
        return LeaseSettings.model_validate(
            {name: getattr(self, name) for name in LeaseSettings.model_fields}
        )

    def conflicts(self) -> Iterator[tuple[str, str]]:
        """Yield each pair of fields whose least value is above the greatest."""
        for least, greatest in PAIRS:
            if getattr(self, least) > getattr(self, greatest):
                yield least, greatest


DEFAULT_TERMS = LeaseTerms()


def terms_of(own: Mapping[str, float | None], deployment: LeaseTerms) -> LeaseTerms:
    """Return the terms of a task group with these settings, by field; None is the value of the deployment."""
    return replace(deployment, **{name: given for name, given in own.items() if given is not None})


def check_settings(
    own: Mapping[str, float | None], deployment: LeaseTerms, given: Collection[str]
) -> None:
    """Check the settings of a task group together with those of the deployment.

    Args:
        own: all that it has after the change; None is the value of the deployment.
        deployment: the values of the deployment.
        given: the fields that the change names.

    Raises:
        InvalidRequest: a least value is above the greatest; names a field of the change.
    """
    terms = terms_of(own, deployment)
    for least, greatest in terms.conflicts():
        field, other, word = greatest, least, "at least"
        if least in given:
            field, other, word = least, greatest, "at most"
        whose = "" if own.get(other) is not None else " of the deployment"
        raise InvalidRequest(
            f"must be {word} {other}{whose}, {getattr(terms, other):g} s, not {getattr(terms, field):g} s",
            field=f"lease_settings.{field}",
        )
