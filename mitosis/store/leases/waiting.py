"""Reads what explains one task group: the facts of decisions, and what its hosts are doing."""

from collections.abc import Sequence
from dataclasses import dataclass

from mitosis.contracts.http import TaskGroupKind
from mitosis.contracts.lifecycle import (
    TASK_GROUP,
    EnvironmentState,
    HookState,
    LeaseState,
    TaskGroupResult,
    TaskGroupState,
)
from mitosis.scheduling.host_sets import Hosts
from mitosis.scheduling.moment import Moment
from mitosis.scheduling.states import GroupState, HostState
from mitosis.store.leases.fleet import HOSTS_BY_NUMBER, ONE_GROUP, GroupRow, HostRow
from mitosis.store.leases.fleet_snapshot import Fleet, build_fleet, fact_parameters
from mitosis.store.leases.lease_terms import policy_of
from mitosis.store.leases.service_coverage import Coverage, read_coverage
from mitosis.store.pg.database import Connection
from mitosis.store.pg.rows import fetch_all, fetch_one
from mitosis.store.pg.statements import load
from mitosis.store.store import Store

SQL = load("leases/waiting.sql")
WAITING_GROUP = "\n".join(("WITH facts AS (", ONE_GROUP, ")", SQL["group_details"]))
WAITING_HOSTS = "\n".join(("WITH facts AS (", HOSTS_BY_NUMBER, ")", SQL["host_details"]))


@dataclass(frozen=True, slots=True, kw_only=True)
class SetupRun:
    """The last run of a setup hook on a host."""

    state: HookState
    message: str | None
    exit_code: int | None
    signal: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingHost(HostRow):
    """A host that has a role in the user group, is named for the group, or holds a lease for it."""

    alive_in_seconds: float | None
    """Until ``alive_until`` of its lease; None without a lease, and while it is offered."""
    asked_back_in_seconds: float | None
    """Until its lease, which ends for another task group, gives back the tasks that have not started."""
    lost_after_seconds: float
    """Silence after which it is lost: the setting of its lease's group, else that of the deployment."""
    environment: EnvironmentState | None
    """Of this group on it."""
    setup: SetupRun | None
    """Of this group on it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingGroup(GroupRow):
    """A task group whose progress is explained."""

    now: float
    kind: TaskGroupKind
    state: TaskGroupState
    settled: bool
    result: TaskGroupResult | None
    reason: str | None
    """Given with the verb that ended it."""
    total: int
    discarding: bool
    unsent_seconds: float | None
    """Age of the oldest message that Temporal has not received."""
    delayed_seconds: float | None
    """Until the next delayed attempt is due."""
    ends_if_setup_fails: bool
    """On every host that may serve it."""
    closes_in_seconds: float | None
    """Until it is closed for inactivity or at its deadline; None: by a verb only."""

    @property
    def ending(self) -> bool:
        """Whether it is terminal, or its unfinished tasks are being cancelled."""
        return self.state in TASK_GROUP.terminal or self.discarding


@dataclass(frozen=True, slots=True)
class _Number:
    number: int


class Waiting:
    """The facts about one group and its hosts, and the same as a decision sees them."""

    def __init__(
        self,
        group: WaitingGroup,
        hosts: Sequence[WaitingHost],
        fleet: Fleet,
        coverage: Coverage | None = None,
    ) -> None:
        self.group = group
        self.hosts = hosts
        self.coverage = coverage
        """Of a group of worker services."""
        self.moment = Moment(fleet.snapshot, fleet.now)

    @property
    def group_state(self) -> GroupState:
        """Return the group as a decision sees it."""
        return self.moment.snapshot.groups[self.group.number]

    def host_state(self, host: WaitingHost) -> HostState:
        """Return a host as a decision sees it."""
        return self.moment.snapshot.hosts[host.number]

    def among(self, hosts: Sequence[WaitingHost], those: Hosts) -> Sequence[WaitingHost]:
        """Return the hosts that are in a set."""
        return [host for host in hosts if those >> self.host_state(host).ordinal & 1]

    def holders(self) -> Sequence[WaitingHost]:
        """Return the hosts that hold a lease of the group."""
        return [host for host in self.hosts if self.lease_state(host) is not None]

    def lease_state(self, host: WaitingHost) -> LeaseState | None:
        """Return the state of the lease that a host has for the group; None: it has none."""
        return host.lease_state if host.lease_group == self.group.number else None

    def in_contact(self, host: WaitingHost) -> bool:
        """Return whether the contact of a host is recent enough for an offer."""
        return self.host_state(host).fact.in_contact

    def silent_seconds(self, host: WaitingHost) -> float | None:
        """Return the time since the last contact of a host; None: there was none."""
        return None if host.last_contact_at is None else self.moment.now - host.last_contact_at


async def read_waiting(connection: Connection, store: Store, group_number: int) -> Waiting | None:
    """Read the facts about one group; None if there is no such group. One to three round trips for hosts."""
    values = {
        **fact_parameters(store),
        "group_number": group_number,
        "hosts": 1,
        "host_lost_after": store.host_lost_after.total_seconds(),
    }
    group = await fetch_one(connection, WaitingGroup, WAITING_GROUP, values)
    if group is None:
        return None
    hosts = list[WaitingHost]()
    coverage = None
    if group.settled:
        pass
    elif group.kind == "service":
        coverage = await read_coverage(connection, group_number)
    else:
        numbers = await fetch_all(connection, _Number, SQL["hosts_of_group"], values)
        values["managers"] = [row.number for row in numbers]
        hosts = await fetch_all(connection, WaitingHost, WAITING_HOSTS, values)
    fleet = build_fleet(policy_of(store), group.now, hosts, [group])
    return Waiting(group, hosts, fleet, coverage)
