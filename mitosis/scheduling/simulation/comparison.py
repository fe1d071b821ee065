"""The rules of the product, and the policies that they are compared with."""

from collections.abc import Mapping
from dataclasses import replace
from enum import StrEnum

from mitosis.contracts.lease_settings import LeaseTerms
from mitosis.scheduling.policy import Order, Policy, Preemption

NO_LIMIT = 1_000_000


class PolicyName(StrEnum):
    """A policy to simulate."""

    RULES = "rules"
    """The rules of the product, with the settings of the deployment."""
    NO_FAIR_SHARE = "no-fair-share"
    """The same in the order of priority and age: leases of user groups make no difference."""
    FIFO = "fifo"
    """In the order of age. No host is taken from work, and none waits for more work."""
    ALWAYS_PREEMPT = "always-preempt"
    """A higher priority takes hosts at any time, and none waits for more work."""


NOT_STICKY = LeaseTerms(idle_threshold=0.0, longest_idle=0.0)


def policies(rules: Policy) -> Mapping[PolicyName, Policy]:
    """Return all policies, given the rules of the deployment."""
    return {
        PolicyName.RULES: rules,
        PolicyName.NO_FAIR_SHARE: replace(rules, order=Order.PRIORITY),
        PolicyName.FIFO: replace(
            rules,
            order=Order.AGE,
            preemption=Preemption.NEVER,
            leases=NOT_STICKY,
            moves_per_hour=NO_LIMIT,
            starve_after_seconds=None,
        ),
        PolicyName.ALWAYS_PREEMPT: replace(
            rules,
            order=Order.PRIORITY,
            preemption=Preemption.ALWAYS,
            leases=NOT_STICKY,
            moves_per_hour=NO_LIMIT,
            starve_after_seconds=None,
        ),
    }
