"""Verbs, losses and time over the real store, and after each of them rounds until nothing changes.

Time passes as in other tests of the store: every time in the rows becomes earlier. Hosts that can be reached
are in contact all the time. ``oracle.py`` judges what a round does.
"""

import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, LiteralString
from unittest.mock import patch
from uuid import UUID

from psycopg import sql
from sqlalchemy import DateTime

from mitosis.contracts.control import AssignAnswer, Cancel
from mitosis.contracts.errors import Conflict, InvalidTransition, NotFound, TaskGroupClosed
from mitosis.contracts.http import RegisterManager, TaskGroupUpdate
from mitosis.contracts.manager_verbs import ManagerUpdate
from mitosis.scheduling.actions import Offer
from mitosis.store.groups.assignment import add_managers, refresh_managers, remove_managers
from mitosis.store.groups.definition import update_group
from mitosis.store.groups.deletion import delete_group
from mitosis.store.leases import scheduler
from mitosis.store.leases.actions import Done, carry_out
from mitosis.store.leases.look import look
from mitosis.store.leases.scheduler import assign_round
from mitosis.store.managers.changes import delete_manager, update_manager
from mitosis.store.managers.draining import drain_manager, resume_manager
from mitosis.store.managers.registration import register_manager
from mitosis.store.pg.tables import METADATA
from mitosis.store.users.accounts import add_member, create_user
from tests.support.campaigns import Host, World
from tests.support.fleet_machine.hosts import MachineHost
from tests.support.fleet_machine.oracle import Facts, KnownGroup, KnownHost, LeaseRow, Oracle
from tests.support.group_workflow import follow_task_group

ROUNDS = 12
"""Rounds and turns of the hosts until nothing changes; more are a fault."""
TURN_SECONDS = 2.0
"""A host that has just claimed counts as one with room for a second."""
LEASES = """
SELECT l.epoch, g.uuid AS "group", m.uuid AS host, l.state, l.draining,
       coalesce(e.state = 'ready', false) AS ready,
       (SELECT count(*) FROM open_task AS o WHERE o.state = 1 AND o.epoch = l.epoch) AS claimed,
       (SELECT count(*) FROM open_task AS o
         WHERE o.state = 1 AND o.epoch = l.epoch AND o.started_at IS NOT NULL) AS started,
       extract(epoch FROM l.affinity_until - now())::float8 AS affinity_left,
       extract(epoch FROM now() - coalesce(l.taken_at, l.offered_at))::float8 AS age,
       f.uuid AS freed_for, extract(epoch FROM now() - l.contested_at)::float8 AS contested_ago,
       extract(epoch FROM now() - l.ended_at)::float8 AS ended_ago
  FROM leases AS l
  JOIN managers AS m ON m.id = l.manager_id
  JOIN task_groups AS g ON g.id = l.group_id
  LEFT JOIN task_groups AS f ON f.id = l.freed_for
  LEFT JOIN environments AS e ON e.manager_id = l.manager_id AND e.group_id = l.group_id"""
TASKS = """
SELECT g.uuid AS "group", count(*) FILTER (WHERE o.state = 0) AS claimable, count(*) AS unfinished
  FROM open_task AS o JOIN task_groups AS g ON g.id = o.group_id GROUP BY g.uuid"""
DIRTY = """
SELECT m.uuid AS host, e.task_group_uuid AS "group"
  FROM environments AS e JOIN managers AS m ON m.id = e.manager_id
  LEFT JOIN group_live AS v ON v.group_id = e.group_id
 WHERE e.state <> 'gone' AND (e.state <> 'ready' OR v.state IS NULL OR v.state NOT IN ('open', 'closed'))
   AND NOT EXISTS (SELECT FROM leases AS l WHERE l.manager_id = e.manager_id AND l.group_id = e.group_id
                      AND l.state <> 'ended')"""
PAUSED = """
SELECT m.uuid AS host, CASE WHEN h.kind <> 'unreachable' THEN g.uuid END AS "group"
  FROM host_failures AS h JOIN managers AS m ON m.id = h.manager_id
  JOIN task_groups AS g ON g.id = h.group_id
 WHERE h.next_at > now() AND h.incarnation = m.incarnation"""
MOVES = """
SELECT m.uuid AS host, count(*) AS moves FROM leases AS l JOIN managers AS m ON m.id = l.manager_id
 WHERE l.contested_at > now() - interval '1 hour' AND NOT l.was_idle GROUP BY m.uuid"""
OF_CONTACT = {
    ("manager_live", "last_contact_at"),
    ("leases", "alive_until"),
    ("leases", "last_claim_at"),
}
KEPT: Mapping[str, LiteralString] = {
    "last_claim_at": "CASE WHEN {0} IS NOT NULL THEN"
    " greatest({0} - make_interval(secs => %(seconds)s), now() - interval '2 s') END"
}
"""An idle host claims every few seconds, but not in this one."""


class Broken(AssertionError):
    """A rule does not hold."""


@dataclass
class Machine:
    """The fleet, and what the test has done to it."""

    w: World
    hosts: dict[UUID, MachineHost] = field(default_factory=dict)
    oracle: Oracle = field(default_factory=Oracle)
    passed: float = 0.0
    story: list[str] = field(default_factory=list)
    _worked_at: dict[int, float] = field(default_factory=dict)
    """When each lease was last seen with work."""

    @property
    def now(self) -> float:
        return time.monotonic() + self.passed

    async def begin(self) -> None:
        if not await self.w.rows("SELECT 1 FROM users WHERE username = 'bob'"):
            await create_user(self.w.store, "bob")
            await add_member(self.w.store, "bob", "alice", "admin")

    # --- verbs ----------------------------------------------------------------------------------

    async def create_host(self, tags: frozenset[str], cores: int, roles: Mapping[str, str]) -> UUID:
        name = f"h{len(self.hosts)}"
        wanted = tuple(f"{group}:{role}" for group, role in roles.items())
        spec = RegisterManager(name=name, tags=tags, groups=wanted)
        host, _ = await register_manager(self.w.store, spec, self.w.user_id)
        agent = Host(self.w, host)
        await agent.hello(cores=tuple(range(cores)))
        self.hosts[host] = MachineHost(self.w, agent, tuple(range(cores)))
        known = KnownHost(host, name, tags, cores, dict(roles))
        self.oracle.hosts[host] = known
        for group in self.oracle.groups.values():
            if group.fits(known):
                group.matched.add(host)
        return host

    async def create_group(self, known: KnownGroup) -> None:
        plan: dict[str, Any] = {"worker_count": known.workers}
        if known.exclusive:
            plan["cpu_binding"] = {"strategy": "exclusive", "cores_per_worker": 1}
        settings: dict[str, Any] = {}
        if known.idle_seconds is not None:
            settings = {"lease_settings": {"idle_threshold": known.idle_seconds}}
        group = await self.w.group(
            known.name,
            group_name=known.user_group,
            priority=known.priority,
            tags=known.tags,
            tag_match=known.match,
            assignment_method="user_specified" if known.named else "tag_matched",
            worker_allocation_plan=plan,
            max_managers=known.max_managers,
            **settings,
        )
        known.id, known.refreshed_tags = group, known.tags
        known.matched = {host.id for host in self.oracle.hosts.values() if known.fits(host)}
        self.oracle.groups[group] = known

    async def submit(self, group: KnownGroup, count: int) -> None:
        with suppress(TaskGroupClosed, Conflict, NotFound):
            await self.w.submit(group.id, count)

    async def add(self, group: KnownGroup, host: KnownHost) -> None:
        if host.roles.get(group.user_group) == "write" and not host.deleted:
            with suppress(NotFound):
                await add_managers(self.w.store, group.id, [host.id], self.w.user_id)
                group.removed.discard(host.id)
                group.added.add(host.id)

    async def remove(self, group: KnownGroup, host: KnownHost) -> None:
        with suppress(NotFound):
            await remove_managers(self.w.store, group.id, [host.id], self.w.user_id)
            group.added.discard(host.id)
            group.removed.add(host.id)

    async def refresh(self, group: KnownGroup) -> None:
        with suppress(NotFound):
            await refresh_managers(self.w.store, group.id)
        group.refreshed_tags = group.tags
        group.matched = {
            host.id for host in self.oracle.hosts.values() if not host.deleted and group.fits(host)
        }

    async def retag_group(self, group: KnownGroup, tags: frozenset[str]) -> None:
        await self.update(group, tags=tags)

    async def retag_host(self, host: KnownHost, tags: frozenset[str]) -> None:
        if not host.deleted:
            await update_manager(self.w.store, host.id, ManagerUpdate(tags=tags))
            host.tags = tags

    async def set_role(self, host: KnownHost, user_group: str, role: str) -> None:
        await self.w.rows(
            "UPDATE user_group_managers AS r SET role = %s FROM managers AS m, user_groups AS u"
            " WHERE m.id = r.manager_id AND u.id = r.user_group_id AND m.uuid = %s AND u.name = %s",
            *(role, host.id, user_group),
        )
        if user_group in host.roles:
            host.roles[user_group] = role

    async def update(self, group: KnownGroup, **changes: Any) -> None:
        with suppress(Conflict, NotFound):
            await update_group(self.w.store, group.id, TaskGroupUpdate(**changes))
            for name in ("priority", "max_managers", "tags"):
                if name in changes:
                    setattr(group, name, changes[name])

    async def drain(self, host: KnownHost, *, now: bool) -> None:
        with suppress(NotFound):
            await drain_manager(self.w.store, host.id, now=now)
            host.draining = True

    async def resume(self, host: KnownHost) -> None:
        with suppress(NotFound):
            await resume_manager(self.w.store, host.id)
            host.draining = False

    async def delete_host(self, host: KnownHost) -> None:
        with suppress(Conflict, NotFound):
            await delete_manager(self.w.store, host.id)
            host.deleted = True
            self.hosts.pop(host.id)

    async def end_group(self, group: KnownGroup, how: str) -> None:
        """Close, reopen, cancel, complete by force, delete."""
        with suppress(InvalidTransition, Conflict, NotFound):
            match how:
                case "close":
                    await self.w.close(group.id)
                case "reopen":
                    await self.w.reopen(group.id)
                case "cancel":
                    await self.w.cancel(group.id)
                    group.goes_on = False
                case "complete":
                    await self.w.complete(group.id, force=True)
                    group.goes_on = False
                case "delete":
                    await delete_group(self.w.store, group.id, Cancel())
                    group.goes_on = False

    # --- hosts ----------------------------------------------------------------------------------

    async def lose(self, host: KnownHost) -> None:
        if host.id in self.hosts and host.silent_since is None:
            self.hosts[host.id].reachable, host.silent_since = False, self.now

    async def come_back(self, host: KnownHost, *, restarted: bool) -> None:
        if host.id in self.hosts and host.silent_since is not None:
            await self.hosts[host.id].come_back(restarted=restarted)
            host.silent_since = None

    async def finish(self, host: KnownHost, count: int) -> None:
        if host.id in self.hosts and host.silent_since is None:
            await self.hosts[host.id].finish(count)

    # --- time -----------------------------------------------------------------------------------

    async def pass_time(self, seconds: float) -> None:
        """Let every time in the rows be so much earlier; who can be reached stays in contact."""
        silent = [host.id for host in self.hosts.values() if not host.reachable]
        async with self.w.database.transaction() as connection:
            for statement in AGEING:
                await connection.execute(statement, {"seconds": seconds, "silent": silent})
        self.passed += seconds

    async def until_rest(self, *, takes: bool) -> None:
        """Let hosts, workflows and rounds follow until nothing changes; judge each round."""
        for _ in range(ROUNDS):
            await self._turn(takes=takes)
            await self.pass_time(TURN_SECONDS)
            before = await self.facts()
            waste = list(self.oracle.waste(before, self.idle_for(before), self.now))
            if waste and not (await look(self.w.store)).what:
                raise Broken(f"the look finds nothing, although {waste}")
            await self.round()
            after = await self.facts()
            idle = self.idle_for(before)
            self._judge(self.oracle.wrong_offers(before, after, self.now))
            self._judge(self.oracle.wrong_ends(before, after, idle, self.now))
            if before.shape == after.shape:
                break
        else:
            raise Broken(f"no rest after {ROUNDS} rounds")
        self._judge(self.oracle.too_many(after))
        self._judge(self.oracle.waste(after, self.idle_for(after), self.now))
        await self.w.check()

    async def round(self) -> AssignAnswer:
        """Nothing else happens during a round, so each offer that it decides is one that it can write."""

        async def written(connection: Any, actions: Iterable[Any], now: float) -> Done:
            decided = list(actions)
            done = await carry_out(connection, decided, now)
            offers = [action for action in decided if isinstance(action, Offer)]
            if len(offers) != done.offered:
                raise Broken(f"only {done.offered} offers could be written of {offers}")
            return done

        with patch.object(scheduler, "carry_out", written):
            return await assign_round(self.w.store)

    async def _turn(self, *, takes: bool) -> None:
        facts = await self.facts()
        for host in list(self.hosts.values()):
            await host.act(facts, self.oracle.groups, takes=takes)
            self.oracle.hosts[host.id].setup_failed = host.failed_setups
        subjects = [group.id for group in self.oracle.groups.values()]
        for group in subjects:
            await self._follow(group)
        await self.w.pokes()
        await self.w.delete_rows(1000)

    async def _follow(self, group: UUID) -> None:
        """What the workflow of a task group does until it waits."""
        view = await follow_task_group(self.w.control, group)
        goes_on = view.state in ("open", "closed") and not view.discarding
        self.oracle.groups[group].goes_on = view.exists and goes_on

    # --- what is there --------------------------------------------------------------------------

    async def facts(self) -> Facts:
        leases = [LeaseRow(**row) for row in await self.w.rows(LEASES)]
        tasks = await self.w.rows(TASKS)
        dirty: dict[UUID, set[UUID]] = {}
        for row in await self.w.rows(DIRTY):
            dirty.setdefault(row["host"], set()).add(row["group"])
        found = Facts(
            at=self.now,
            leases={lease.epoch: lease for lease in leases},
            claimable={row["group"]: row["claimable"] for row in tasks},
            unfinished={row["group"]: row["unfinished"] for row in tasks},
            dirty=dirty,
            paused={(row["host"], row["group"]) for row in await self.w.rows(PAUSED)},
            moves={row["host"]: row["moves"] for row in await self.w.rows(MOVES)},
        )
        for lease in leases:
            known = lease.epoch in self._worked_at and lease.state != "offered"
            if not known or lease.claimed or found.claimable.get(lease.group):
                self._worked_at[lease.epoch] = self.now
        return found

    def idle_for(self, facts: Facts) -> dict[int, float]:
        """How long each lease has had no work, by what was seen (C-04)."""
        return {epoch: facts.at - self._worked_at.get(epoch, facts.at) for epoch in facts.leases}

    def _judge(self, broken: Any) -> None:
        found = list(broken)
        if found:
            raise Broken("; ".join(found))


async def emptied(w: World) -> None:
    """Delete all but the users."""
    for table in reversed(METADATA.sorted_tables):
        if table.name not in ("users", "user_groups", "user_group_members"):
            await w.rows(sql.SQL("DELETE FROM {}").format(sql.Identifier(table.name)))


def _ageing() -> list[sql.Composed]:
    """Return one statement for each table with times."""
    silent = {
        "manager_live": "manager_id IN (SELECT id FROM managers WHERE uuid = ANY(%(silent)s))",
        "leases": "manager_id IN (SELECT id FROM managers WHERE uuid = ANY(%(silent)s))",
    }
    statements = []
    for table in METADATA.sorted_tables:
        if table.name in ("api_pulse", "live_processes"):
            continue
        changes = []
        for column in table.columns:
            if not isinstance(column.type, DateTime):
                continue
            name = sql.Identifier(column.name)
            earlier = sql.SQL("{} - make_interval(secs => %(seconds)s)").format(name)
            if (table.name, column.name) in OF_CONTACT:
                only = sql.SQL(silent[table.name])
                kept = sql.SQL(KEPT.get(column.name, "{}")).format(name)
                earlier = sql.SQL("CASE WHEN {} THEN {} ELSE {} END").format(only, earlier, kept)
            changes.append(sql.SQL("{} = {}").format(name, earlier))
        if changes:
            parts = (sql.Identifier(table.name), sql.SQL(", ").join(changes))
            statements.append(sql.SQL("UPDATE {} SET {}").format(*parts))
    return statements


AGEING = _ageing()
