"""What the scheduler may do and must do, in plain words of the requirements (C-31, C-32, C-35, C-36, P9).

Nothing of ``mitosis.scheduling`` or of its SQL is used here: who is a member, which host fits and which lease
may be taken follow from what the test has done (verbs, losses, time), and from rows that say what is there.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from uuid import UUID

IDLE_SECONDS = (180.0, 600.0)
"""C-35; nothing is measured here, so the lower one holds unless the task group has its own."""
AFFINITY_SECONDS = 3600.0
MOVES_PER_HOUR = 6
TASKS_PER_WORKER = 2
FREED_SECONDS, DRAIN_SECONDS = 300.0, 1800.0
"""So long a host counts for the task group for which it was freed, or drains."""
SLACK_SECONDS = 10.0
"""Work conservation allows so long; the clocks of a test differ by less."""


@dataclass
class KnownHost:
    """What was done to a host."""

    id: UUID
    name: str
    tags: frozenset[str]
    cores: int
    roles: dict[str, str]
    """User group → role."""
    draining: bool = False
    silent_since: float | None = None
    deleted: bool = False
    setup_failed: set[UUID] = field(default_factory=set)
    """Under this process of its agent."""


@dataclass
class KnownGroup:
    """What was done to a task group."""

    id: UUID
    name: str
    created: int
    user_group: str
    priority: int
    named: bool
    """``user_specified``."""
    tags: frozenset[str]
    match: str
    """``all`` or ``any``."""
    workers: int
    exclusive: bool
    """Each worker has a core of its own."""
    max_managers: int | None
    idle_seconds: float | None = None
    matched: set[UUID] = field(default_factory=set)
    """Hosts whose tags matched at the last refresh, or at their registration since."""
    refreshed_tags: frozenset[str] = frozenset()
    added: set[UUID] = field(default_factory=set)
    removed: set[UUID] = field(default_factory=set)
    goes_on: bool = True

    def fits(self, host: KnownHost) -> bool:
        """C-01, by the tags of the last refresh."""
        wanted = self.refreshed_tags
        if not wanted:
            return True
        return wanted <= host.tags if self.match == "all" else bool(wanted & host.tags)

    def has_member(self, host: UUID) -> bool:
        """C-32."""
        if host in self.added:
            return True
        return not self.named and host in self.matched and host not in self.removed

    @property
    def idle_threshold(self) -> float:
        return self.idle_seconds or IDLE_SECONDS[0]


@dataclass(frozen=True)
class LeaseRow:
    epoch: int
    group: UUID
    host: UUID
    state: str
    draining: bool
    ready: bool
    """Its environment."""
    claimed: int
    started: int
    affinity_left: float | None
    age: float
    """Since it was taken, else offered."""
    freed_for: UUID | None
    contested_ago: float | None
    ended_ago: float | None

    @property
    def lives(self) -> bool:
        """Whether it claims, or will."""
        return self.state in ("offered", "active") and not self.draining

    @property
    def is_on_its_way(self) -> bool:
        """Whether its host still counts for the task group that gets it."""
        if self.ended_ago is not None:
            return self.ended_ago < FREED_SECONDS
        return self.ends and (self.contested_ago or 0.0) < DRAIN_SECONDS

    @property
    def ends(self) -> bool:
        return self.state == "ending" or (self.state == "active" and self.draining)


@dataclass(frozen=True)
class Facts:
    """Rows at one time, by plain statements."""

    at: float
    leases: dict[int, LeaseRow]
    claimable: dict[UUID, int]
    unfinished: dict[UUID, int]
    dirty: dict[UUID, set[UUID]]
    """Host → task groups whose environment there is neither gone nor kept for a task group that goes on."""
    paused: set[tuple[UUID, UUID | None]]
    """Host and task group (None: all) after a failure that time alone ends."""
    moves: dict[UUID, int]
    """Contested ends of leases of a host in the last hour."""

    @property
    def shape(self) -> object:
        """What a round changes for hosts and task groups."""
        return {e: (one.state, one.draining, one.freed_for) for e, one in self.leases.items()}

    def of_group(self, group: UUID) -> list[LeaseRow]:
        return [lease for lease in self.leases.values() if lease.group == group]

    def on_host(self, host: UUID) -> list[LeaseRow]:
        return [one for one in self.leases.values() if one.host == host and one.state != "ended"]


@dataclass
class Oracle:
    """The rules over hosts and task groups as the test knows them."""

    hosts: dict[UUID, KnownHost] = field(default_factory=dict)
    groups: dict[UUID, KnownGroup] = field(default_factory=dict)
    affinity_seconds: float = AFFINITY_SECONDS
    moves_per_hour: int = MOVES_PER_HOUR

    def forbids(self, facts: Facts, group: KnownGroup, host: KnownHost, now: float) -> str | None:
        """Why this host may not be given to this task group, whether it is free or not."""
        paused = {(host.id, group.id), (host.id, None)} & facts.paused
        conditions = (
            (host.deleted, "is deleted"),
            (host.draining, "drains"),
            (self._silent(host.id, now), "is silent"),
            (host.roles.get(group.user_group) not in ("write", "admin"), "has no write role"),
            (not group.has_member(host.id), "is no member"),
            (group.exclusive and host.cores < group.workers, "has too few cores"),
            (group.id in host.setup_failed, "has failed the setup"),
            (bool(paused), "has failed a short time ago"),
        )
        return next((why for holds, why in conditions if holds), None)

    def missing(self, facts: Facts, group: KnownGroup, now: float) -> int:
        """How many more leases are useful, beside those that work or are on their way (P9)."""
        ready = facts.claimable.get(group.id, 0)
        if not group.goes_on or not ready:
            return 0
        live = [lease for lease in facts.of_group(group.id) if lease.lives]
        usable = [lease for lease in live if not self._silent(lease.host, now)]
        full = sum(lease.started >= group.workers for lease in usable)
        useful = full + -(-ready // (TASKS_PER_WORKER * group.workers))
        lacks = useful - len(usable)
        if group.max_managers is not None:
            ending = sum(lease.ends for lease in facts.of_group(group.id))
            lacks = min(lacks, group.max_managers - len(live) - ending)
        return lacks - self.promised(facts, group, now)

    def promised(self, facts: Facts, group: KnownGroup, now: float) -> int:
        """Hosts on their way: taken from another task group for this one, and not offered yet."""
        return sum(
            lease.freed_for == group.id
            and lease.is_on_its_way
            and self.forbids(facts, group, self.hosts[lease.host], now) is None
            for lease in facts.leases.values()
        )

    def leases_with_those_coming(self, facts: Facts, group: KnownGroup, now: float) -> int:
        live = sum(lease.lives for lease in facts.of_group(group.id))
        return live + self.promised(facts, group, now)

    def share(self, facts: Facts, user_group: str, now: float) -> int:
        """The leases of a user group."""
        groups = [one for one in self.groups.values() if one.user_group == user_group]
        return sum(self.leases_with_those_coming(facts, group, now) for group in groups)

    def goes_before(self, facts: Facts, group: KnownGroup, holder: KnownGroup, now: float) -> bool:
        """C-31: the order between one that waits and one that has a host."""
        if group.priority != holder.priority:
            return group.priority > holder.priority
        if group.user_group == holder.user_group:
            mine = self.leases_with_those_coming(facts, group, now)
            theirs = self.leases_with_those_coming(facts, holder, now)
        else:
            mine = self.share(facts, group.user_group, now)
            theirs = self.share(facts, holder.user_group, now)
        return theirs - mine >= 2 or mine == 0

    def waste(self, facts: Facts, idle_for: dict[int, float], now: float) -> Iterator[str]:
        """Hosts that must serve a waiting task group at once and do not: the work conservation."""
        for group in self.groups.values():
            if self.missing(facts, group, now) <= 0:
                continue
            for host in self.hosts.values():
                if self.forbids(facts, group, host, now) is None:
                    wasted = self._waits_beside(facts, group, host, idle_for, now)
                    if wasted is not None:
                        yield f"{group.name} waits, and {host.name} {wasted}"

    def _waits_beside(
        self,
        facts: Facts,
        group: KnownGroup,
        host: KnownHost,
        idle_for: dict[int, float],
        now: float,
    ) -> str | None:
        leases = facts.on_host(host.id)
        if not leases:
            return None if facts.dirty.get(host.id) else "is free"
        [lease] = leases
        holder = self.groups.get(lease.group)
        if holder is None or holder is group or self._is_safe(facts, lease, now):
            return None
        idle = idle_for.get(lease.epoch, 0.0)
        if idle > holder.idle_threshold + SLACK_SECONDS:
            return f"is idle under {holder.name} for {idle:.0f} s"
        if facts.moves.get(lease.host, 0) >= self.moves_per_hour:
            return None
        over = (lease.affinity_left or 0.0) < -SLACK_SECONDS
        hostless = not self.leases_with_those_coming(facts, group, now)
        aged = lease.age > self.affinity_seconds + SLACK_SECONDS
        if (over or (hostless and aged)) and self.goes_before(facts, group, holder, now):
            return f"stays with {holder.name} beyond its affinity"
        return None

    def _is_safe(self, facts: Facts, lease: LeaseRow, now: float) -> bool:
        """Whether nothing takes a host from this lease now: it begins or ends."""
        works = lease.state == "active" and lease.lives and lease.ready
        return not works or self._silent(lease.host, now)

    def wrong_offers(self, before: Facts, after: Facts, now: float) -> Iterator[str]:
        """Offers of one round that a rule forbids."""
        new = [lease for epoch, lease in after.leases.items() if epoch not in before.leases]
        for lease in new:
            group, host = self.groups[lease.group], self.hosts[lease.host]
            for why in self._wrong_offer(before, after, lease, now):
                yield f"{host.name} was offered to {group.name}, but {why}"
        for group in self.groups.values():
            gained = sum(lease.group == group.id for lease in new)
            useful = max(self.missing(before, group, now), 0) + self.promised(before, group, now)
            if gained > useful:
                yield f"{group.name} got {gained} hosts and can use {useful}"

    def _wrong_offer(
        self, before: Facts, after: Facts, lease: LeaseRow, now: float
    ) -> Iterator[str]:
        group, host = self.groups[lease.group], self.hosts[lease.host]
        if not group.goes_on or not before.claimable.get(group.id):
            yield "that has no work"
        if (why := self.forbids(before, group, host, now)) is not None:
            yield f"the host {why}"
        if any(after.leases[one.epoch].state != "ended" for one in before.on_host(host.id)):
            yield "it has another lease"
        if before.dirty.get(host.id):
            yield "it must be cleaned first"
        if self._promised_to(before, host.id) == group.id:
            return
        for other in self.groups.values():
            may = self.forbids(after, other, host, now) is None
            if other.priority > group.priority and may and self.missing(after, other, now) > 0:
                yield f"{other.name} goes first"

    @staticmethod
    def _promised_to(facts: Facts, host: UUID) -> UUID | None:
        promised = [
            one.freed_for for one in facts.leases.values() if one.host == host and one.freed_for
        ]
        return promised[0] if promised else None

    def wrong_ends(
        self, before: Facts, after: Facts, idle_for: dict[int, float], now: float
    ) -> Iterator[str]:
        """Leases that one round began to end, without a rule that says so."""
        for epoch, lease in before.leases.items():
            later = after.leases[epoch]
            if not lease.lives or later.lives:
                continue
            holder, host = self.groups[lease.group], self.hosts[lease.host]
            what = f"{holder.name} loses {host.name}"
            if self._must_leave(before, lease, holder, host, now):
                continue
            idle = idle_for.get(epoch, 0.0)
            if later.freed_for is None:
                over = (lease.affinity_left or 0.0) <= SLACK_SECONDS
                if not over or before.unfinished.get(holder.id):
                    yield f"{what} for no reason"
            else:
                winner = self.groups[later.freed_for]
                for why in self._wrong_move(before, lease, winner, idle, now):
                    yield f"{what} for {winner.name}, but {why}"

    def _wrong_move(
        self, before: Facts, lease: LeaseRow, winner: KnownGroup, idle: float, now: float
    ) -> Iterator[str]:
        holder, host = self.groups[lease.group], self.hosts[lease.host]
        if (why := self.forbids(before, winner, host, now)) is not None:
            yield f"the host {why}"
        if self.missing(before, winner, now) <= 0:
            yield "that needs none"
        if idle >= holder.idle_threshold - SLACK_SECONDS:
            return
        if before.moves.get(host.id, 0) >= self.moves_per_hour:
            yield f"it was moved {before.moves[host.id]} times in this hour"
        left = min(lease.affinity_left or 0.0, self.affinity_seconds - lease.age)
        if left > SLACK_SECONDS or not self._may_go_before(winner, holder):
            yield f"it is idle for {idle:.0f} s only, and safe for {left:.0f} s"

    @staticmethod
    def _may_go_before(winner: KnownGroup, holder: KnownGroup) -> bool:
        """The shares change within a round, so only the priorities are compared here."""
        return winner.priority >= holder.priority

    def _must_leave(
        self, facts: Facts, lease: LeaseRow, holder: KnownGroup, host: KnownHost, now: float
    ) -> bool:
        live = sum(one.lives for one in facts.of_group(holder.id))
        too_many = holder.max_managers is not None and live > holder.max_managers
        outside = not holder.has_member(host.id)
        roleless = host.roles.get(holder.user_group) not in ("write", "admin")
        silent = self._silent(host.id, now)
        return not holder.goes_on or too_many or outside or roleless or host.draining or silent

    def _silent(self, host: UUID, now: float) -> bool:
        since = self.hosts[host].silent_since
        return since is not None and now - since >= SLACK_SECONDS

    def too_many(self, facts: Facts) -> Iterator[str]:
        """Hosts with two leases, and task groups with more than ``max_managers`` that do not end."""
        for host in self.hosts.values():
            if len(facts.on_host(host.id)) > 1:
                yield f"{host.name} has two leases"
        for group in self.groups.values():
            live = [lease for lease in facts.of_group(group.id) if lease.lives]
            if group.max_managers is not None and len(live) > group.max_managers:
                yield f"{group.name} has {len(live)} leases, at most {group.max_managers} are allowed"
            yield from self._misplaced(live, group)

    def _misplaced(self, live: Sequence[LeaseRow], group: KnownGroup) -> Iterator[str]:
        for lease in live:
            host = self.hosts[lease.host]
            if host.draining:
                yield f"{group.name} keeps {host.name}, which drains"
            if not group.has_member(host.id):
                yield f"{group.name} keeps {host.name}, which is no member"
            if host.roles.get(group.user_group) not in ("write", "admin"):
                yield f"{group.name} keeps {host.name}, which has no write role"
            if not group.goes_on:
                yield f"{group.name} keeps {host.name} after its end"
