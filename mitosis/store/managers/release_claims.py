"""Confirms the reasons for which workflows end leases: what Temporal says is a claim, not a fact.

Temporal's port is open to every user of the machine, who can call our activities with any arguments.
"""

from dataclasses import dataclass

from mitosis.contracts.control import ReleaseReason, ReleaseRequest
from mitosis.contracts.lifecycle import TASK_GROUP, LeaseState, TaskGroupState
from mitosis.contracts.liveness import HOST_TAKES_WITHIN
from mitosis.store.leases.ending import LockedLease
from mitosis.store.pg.database import Connection
from mitosis.store.pg.rows import fetch_one
from mitosis.store.pg.statements import load
from mitosis.store.store import Store

SQL = load("managers/release_claims.sql")


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseFacts:
    """What PostgreSQL knows about a live lease, its host and its task group."""

    offered_seconds: float
    """Since it was offered."""
    silent_seconds: float
    """Since the last contact with the host."""
    group_state: TaskGroupState
    holds_tasks: bool
    """Tasks are claimed under it."""
    environment_is_gone: bool
    """The environment was torn down, or has to be, after the lease was taken."""


async def is_confirmed(
    connection: Connection, store: Store, lease: LockedLease, request: ReleaseRequest
) -> bool:
    """Return whether PostgreSQL confirms the reason for which a workflow ends a locked lease."""
    facts = await fetch_one(connection, LeaseFacts, SQL["facts"], {"epoch": lease.epoch})
    suspect_after = store.suspect_after.total_seconds()
    return facts is not None and confirms(facts, lease.state, request.reason, suspect_after)


def confirms(
    facts: LeaseFacts, state: LeaseState, reason: ReleaseReason, suspect_after: float
) -> bool:
    """Return whether the facts are those of the reason. LOST is decided by the clock of the lease.

    A host in contact says itself that its setup ended without a verdict: it is given the lease again with the
    next answer, and sets up again or says that it is over (P8).
    """
    silent = facts.silent_seconds > suspect_after
    late = facts.offered_seconds >= HOST_TAKES_WITHIN.total_seconds()
    offered = state is LeaseState.OFFERED
    ended = state is LeaseState.ENDING and not facts.holds_tasks
    true_of = {
        ReleaseReason.GROUP_ENDED: (offered or ended) and facts.group_state in TASK_GROUP.terminal,
        ReleaseReason.MOVED: ended,
        ReleaseReason.UNREACHABLE: offered and (late or silent),
        ReleaseReason.LOST: offered and silent,
        ReleaseReason.SETUP_FAILED: not offered
        and not facts.holds_tasks
        and facts.environment_is_gone,
        ReleaseReason.SETUP_LOST: state is LeaseState.ACTIVE and silent and not facts.holds_tasks,
    }
    return true_of.get(reason, False)
