"""Which idle manager serves which group: pure functions over rows of the assignment round.

Groups come by priority, then age; each takes the managers it wants while there are any. Preferred
are managers with a ready environment of the group, then those with the fewest other ones.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from mitosis.contracts.allocation import WorkerAllocationPlan, worker_cpus
from mitosis.contracts.errors import InvalidRequest

TASKS_PER_WORKER = 2
"""A group wants another manager for every so many ready tasks per worker: ten tasks do not prepare a
hundred hosts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleManager:
    """A manager that may be offered a lease."""

    number: int
    tags: frozenset[str]
    cores: tuple[int, ...]
    serves: frozenset[int]
    """User groups in which it has a write role."""
    warm: frozenset[int]
    """Groups whose environment is ready there."""
    failed: frozenset[int]
    """Groups whose setup failed there: not offered again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HungryGroup:
    """A group with claimable work."""

    number: int
    user_group: int
    tags: frozenset[str]
    tag_match: Literal["all", "any"]
    named: frozenset[int] | None
    """Managers a user named; None = any that fit."""
    max_managers: int | None
    plan: WorkerAllocationPlan
    live_leases: int
    """Offers and setups in progress count: they will be capacity."""
    ready: int


@dataclass(frozen=True, slots=True)
class Offer:
    group: int
    manager: int


def wanted(group: HungryGroup) -> int:
    """How many leases the group should have in all: at least one if anything is ready."""
    if group.ready == 0:
        return 0
    per_manager = TASKS_PER_WORKER * group.plan.worker_count
    by_work = -(-group.ready // per_manager)
    return by_work if group.max_managers is None else min(by_work, group.max_managers)


def may_serve(manager: IdleManager, group: HungryGroup) -> bool:
    """Permission, explicit list, tags, hook history, and whether the plan fits its cores."""
    if group.user_group not in manager.serves or group.number in manager.failed:
        return False
    if group.named is not None and manager.number not in group.named:
        return False
    return _tags_fit(manager, group) and _plan_fits(manager, group.plan)


def match(groups: Iterable[HungryGroup], idle: dict[int, IdleManager]) -> list[Offer]:
    """Offers for these groups in order; the managers used are taken out of ``idle``."""
    offers: list[Offer] = []
    for group in groups:
        missing = wanted(group) - group.live_leases
        if missing <= 0 or not idle:
            continue
        able = [manager for manager in idle.values() if may_serve(manager, group)]
        able.sort(key=lambda m: (group.number not in m.warm, len(m.warm), m.number))
        for manager in able[:missing]:
            offers.append(Offer(group.number, manager.number))
            del idle[manager.number]
    return offers


def _tags_fit(manager: IdleManager, group: HungryGroup) -> bool:
    if group.tag_match == "all" or not group.tags:
        return group.tags <= manager.tags
    return bool(group.tags & manager.tags)


def _plan_fits(manager: IdleManager, plan: WorkerAllocationPlan) -> bool:
    try:
        worker_cpus(plan, manager.cores)
    except InvalidRequest:
        return False
    return True
