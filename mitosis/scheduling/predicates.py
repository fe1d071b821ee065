"""The one ordered list of conditions for a host to be offered to a task group.

Each condition is a set: the hosts that pass it for a task group. The decision combines the sets, `explain`
reads one host of each, a dry run shows all. The order is the order of repair: a condition that a clock or
another task group changes by itself comes late. Conditions on the task group alone pass all hosts or none.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from mitosis.contracts.host_failures import HostFailureKind
from mitosis.scheduling import sentences
from mitosis.scheduling.host_sets import EVERY, NONE, Hosts
from mitosis.scheduling.moment import Moment
from mitosis.scheduling.sizes import useful_leases
from mitosis.scheduling.states import GroupState, HostState


class Scope(Enum):
    """What the set of a condition depends on, besides the time. The decision combines each scope once."""

    GROUP = "group"
    """The task group alone: ``GroupState.missing`` is greater than zero if all of them hold."""
    MEMBERS = "members"
    """Together they are ``Group.members``."""
    PROFILE = "profile"
    """The profile of the task group."""
    FAILURES = "failures"
    """The task group, by what hosts failed at for it."""
    HOST = "host"
    """The host alone."""
    FREE = "free"
    """What the leases of the host leave, and what must be cleaned: the end of a lease makes it hold, so it is
    not asked of a host whose lease can be ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicate:
    """One condition."""

    code: str
    """Stable, for programs."""
    scope: Scope
    passing: Callable[[Moment, GroupState], Hosts]
    """The hosts for which it holds."""
    sentence: Callable[[Moment, GroupState, HostState], str]
    """What is in the way, with the value and the threshold. Printed after the name of the host."""

    def holds(self, moment: Moment, group: GroupState, host: HostState) -> bool:
        """Return whether it holds for one host."""
        return bool(self.passing(moment, group) >> host.ordinal & 1)


def _all_or_none(
    holds: Callable[[Moment, GroupState], bool],
) -> Callable[[Moment, GroupState], Hosts]:
    return lambda moment, group: EVERY if holds(moment, group) else NONE


def _has_work(_: Moment, group: GroupState) -> bool:
    return group.work.ready > 0


def _below_max_managers(moment: Moment, group: GroupState) -> bool:
    most, held = group.fact.max_managers, moment.held(group)
    return most is None or held.live + held.ending + held.promised < most


def _can_use_more(moment: Moment, group: GroupState) -> bool:
    held = moment.held(group)
    useful = useful_leases(group.work, group.fact.workers, held.full, moment.policy)
    return held.coming + held.full + held.promised < useful


def _not_removed(_: Moment, group: GroupState) -> Hosts:
    return ~group.fact.removed


def _members_if(method: str) -> Callable[[Moment, GroupState], Hosts]:
    """Return the condition on members for one way of choosing them; it holds for all of the other way."""

    def passing(_: Moment, group: GroupState) -> Hosts:
        chosen = group.fact.assignment_method == method
        return group.fact.members | group.fact.removed if chosen else EVERY

    return passing


def _has_not_failed(kind: HostFailureKind) -> Predicate:
    of_all = kind is HostFailureKind.UNREACHABLE
    return Predicate(
        code=kind.value,
        scope=Scope.HOST if of_all else Scope.FAILURES,
        passing=lambda moment, group: ~moment.failed(kind, None if of_all else group.fact.number),
        sentence=sentences.failure(kind),
    )


PREDICATES: Sequence[Predicate] = (
    Predicate(
        code="ended",
        scope=Scope.GROUP,
        passing=_all_or_none(lambda _, group: group.fact.goes_on),
        sentence=lambda *_: (
            "is not needed: the task group has ended, only open and closed ones get hosts"
        ),
    ),
    Predicate(
        code="no_work",
        scope=Scope.GROUP,
        passing=_all_or_none(_has_work),
        sentence=sentences.no_work,
    ),
    Predicate(
        code="max_managers",
        scope=Scope.GROUP,
        passing=_all_or_none(_below_max_managers),
        sentence=sentences.max_managers,
    ),
    Predicate(
        code="enough",
        scope=Scope.GROUP,
        passing=_all_or_none(_can_use_more),
        sentence=sentences.enough,
    ),
    Predicate(
        code="no_role",
        scope=Scope.PROFILE,
        passing=lambda moment, group: moment.sets.get("serves", group.fact.user_group),
        sentence=sentences.no_role,
    ),
    Predicate(
        code="removed",
        scope=Scope.MEMBERS,
        passing=_not_removed,
        sentence=sentences.removed,
    ),
    Predicate(
        code="not_named",
        scope=Scope.MEMBERS,
        passing=_members_if("user_specified"),
        sentence=sentences.not_named,
    ),
    Predicate(
        code="tags",
        scope=Scope.MEMBERS,
        passing=_members_if("tag_matched"),
        sentence=sentences.tags,
    ),
    Predicate(
        code="misfit",
        scope=Scope.PROFILE,
        passing=lambda moment, group: moment.bindable(group.profile),
        sentence=sentences.misfit,
    ),
    Predicate(
        code="too_small",
        scope=Scope.PROFILE,
        passing=lambda moment, group: moment.able(group.fact.demand),
        sentence=sentences.too_small,
    ),
    _has_not_failed(HostFailureKind.SETUP_FAILED),
    _has_not_failed(HostFailureKind.QUARANTINED),
    Predicate(
        code="no_contact",
        scope=Scope.HOST,
        passing=lambda moment, _: moment.sets.get("in_contact"),
        sentence=sentences.no_contact,
    ),
    _has_not_failed(HostFailureKind.UNREACHABLE),
    _has_not_failed(HostFailureKind.WORKERS_NOT_STARTED),
    _has_not_failed(HostFailureKind.NO_PROGRESS),
    _has_not_failed(HostFailureKind.SUSPECTED),
    Predicate(
        code="draining",
        scope=Scope.HOST,
        passing=lambda moment, _: ~moment.sets.get("draining"),
        sentence=sentences.draining,
    ),
    Predicate(
        code="busy",
        scope=Scope.FREE,
        passing=lambda moment, group: moment.free(group.fact.demand),
        sentence=sentences.busy,
    ),
    # Contained in the next one, so it may stand among conditions that are shared by profile.
    Predicate(
        code="cleanup",
        scope=Scope.FREE,
        passing=lambda moment, group: ~moment.sets.get("cleaning", group.fact.number),
        sentence=sentences.cleaning("this task group"),
    ),
    Predicate(
        code="unclean",
        scope=Scope.FREE,
        passing=lambda moment, _: ~moment.sets.get("unclean"),
        sentence=sentences.cleaning("another task group"),
    ),
)
"""Every condition, in the order in which they are reported."""

BY_CODE = {predicate.code: predicate for predicate in PREDICATES}


def _of(*scopes: Scope) -> Sequence[Predicate]:
    return tuple(predicate for predicate in PREDICATES if predicate.scope in scopes)


_LASTING = _of(Scope.PROFILE)
_IN_SERVICE = _of(Scope.HOST)
_UNLEASED = _of(Scope.FREE)
_FAILURES = _of(Scope.FAILURES)


def _all_of(predicates: Iterable[Predicate], moment: Moment, group: GroupState) -> Hosts:
    found = moment.sets.get("known")
    for predicate in predicates:
        found &= predicate.passing(moment, group)
    return found


def hosts_in_service(moment: Moment, group: GroupState) -> Hosts:
    """Return the hosts that nothing about the host alone keeps from serving any task group."""
    return _all_of(_IN_SERVICE, moment, group)


def lasting_hosts(moment: Moment, group: GroupState) -> Hosts:
    """Return the hosts that could serve all task groups of this profile, whether in service and free or not.

    It depends on the profile only; ``Group.members`` and :func:`unfailed_hosts` narrow it.
    """
    return _all_of(_LASTING, moment, group)


def unleased_hosts(moment: Moment, group: GroupState) -> Hosts:
    """Return the hosts whose leases and clean-ups leave room for the profile now."""
    return _all_of(_UNLEASED, moment, group)


def unfailed_hosts(moment: Moment, group: GroupState) -> Hosts:
    """Return the hosts that no failure keeps from this task group; all others pass too."""
    found = EVERY
    if not moment.sets.get("doubtful", group.fact.number):
        return found  # no host failed at anything for it: nearly always, and this is asked often
    for predicate in _FAILURES:
        found &= predicate.passing(moment, group)
    return found


def setup_failed_everywhere(moment: Moment, group: GroupState) -> Hosts:
    """Return the hosts that may serve a task group if its setup has failed on all of them; else none.

    Hosts that drain or are out of contact may serve it later, so they count as well.
    """
    eligible = group.fact.members & lasting_hosts(moment, group)
    failed = eligible & moment.failed(HostFailureKind.SETUP_FAILED, group.fact.number)
    return failed if failed == eligible else NONE


Condition = tuple[Predicate, Hosts]
"""A condition, and the hosts that pass it for one task group."""


def conditions_for(moment: Moment, group: GroupState) -> Sequence[Condition]:
    """Return all conditions with the hosts that pass each of them."""
    return [(predicate, predicate.passing(moment, group)) for predicate in PREDICATES]


def obstacles(moment: Moment, group: GroupState, host: HostState) -> Iterator[Predicate]:
    """Yield the conditions that do not hold, in order; none: the host may be offered."""
    return (predicate for predicate in PREDICATES if not predicate.holds(moment, group, host))
