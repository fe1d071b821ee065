"""Reads what a campaign leaves in PostgreSQL, past the API and the store, whatever is killed meanwhile."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, LiteralString, TypeVar
from uuid import UUID

import psycopg
from psycopg.rows import dict_row

from tests.chaos import database as of_groups
from tests.chaos.facts import Failure, Result
from tests.chaos.mixed.facts import Rows
from tests.chaos.mixed.records import CLOCKS_APART
from tests.support.waiting import wait_until

T = TypeVar("T")

PATIENCE_SECONDS = 90.0
FAILED_HOOKS = """
SELECT h.kind, m.uuid::text, (extract(epoch FROM h.started_at) * 1e9)::bigint
  FROM hook_runs AS h JOIN managers AS m ON m.id = h.manager_id
 WHERE h.group_id = %s AND h.state = 'failed'"""
HOSTS_OF = """
SELECT m.uuid::text FROM leases AS l JOIN managers AS m ON m.id = l.manager_id
 WHERE l.group_id = %s AND l.state = 'active' ORDER BY m.id"""
IDLE = """
WITH work AS (
    SELECT g.id FROM task_groups AS g JOIN group_live AS v ON v.group_id = g.id
     WHERE v.settled_at IS NULL AND v.state IN ('open', 'closed') AND NOT v.discarding
       AND EXISTS (SELECT FROM open_task AS o WHERE o.group_id = g.id
                      AND (o.state = 0 OR (o.state = 4 AND o.not_before <= now())))
       AND NOT EXISTS (SELECT FROM leases AS l WHERE l.state <> 'ended'
                          AND (l.group_id = g.id OR l.freed_for = g.id))
), free AS (
    SELECT m.id, m.uuid FROM managers AS m JOIN manager_live AS c ON c.manager_id = m.id
     WHERE NOT m.draining AND NOT c.offline AND c.last_contact_at > now() - interval '5 s'
       AND NOT EXISTS (SELECT FROM leases AS l WHERE l.manager_id = m.id AND l.state <> 'ended')
       AND NOT EXISTS (SELECT FROM environments AS e
                        WHERE e.manager_id = m.id AND e.state <> 'gone'
                          AND (e.state <> 'ready'
                               OR NOT EXISTS (SELECT FROM group_live AS v
                                               WHERE v.group_id = e.group_id
                                                 AND v.state IN ('open', 'closed'))))
)
SELECT w.id, f.uuid::text FROM work AS w, free AS f
 WHERE NOT EXISTS (SELECT FROM host_failures AS h
                    WHERE h.manager_id = f.id AND (h.group_id = w.id OR h.kind = 'unreachable')
                      AND (h.next_at IS NULL OR h.next_at > now()))"""
TABLES: dict[str, LiteralString] = {
    "task_groups": "SELECT count(*) FROM task_groups WHERE id = %s",
    "group_live": "SELECT count(*) FROM group_live WHERE group_id = %s",
    "task": "SELECT count(*) FROM task WHERE group_id = %s",
    "open_task": "SELECT count(*) FROM open_task WHERE group_id = %s",
    "task_result": "SELECT count(*) FROM task_result WHERE group_id = %s",
    "task_failures": "SELECT count(*) FROM task_failures WHERE group_id = %s",
    "submission": "SELECT count(*) FROM submission WHERE group_id = %s",
    "task_retries": "SELECT count(*) FROM task_retries WHERE group_id = %s",
    "host_failures": "SELECT count(*) FROM host_failures WHERE group_id = %s",
    "task_group_managers": "SELECT count(*) FROM task_group_managers WHERE task_group_id = %s",
    "leases": "SELECT count(*) FROM leases WHERE group_id = %s AND state <> 'ended'",
    "environments": "SELECT count(*) FROM environments WHERE group_id = %s AND state <> 'gone'",
    "deleted_groups": "SELECT count(*) FROM deleted_groups WHERE group_id = %s AND finished_at IS NULL",
}
"""Where rows of a deleted group may be left, and must not."""
LEFTOVERS: dict[str, LiteralString] = {
    "leases": "SELECT epoch, group_id, state FROM leases WHERE state <> 'ended'",
    "environments": "SELECT group_id, manager_id, state FROM environments WHERE state <> 'gone'",
    "open tasks": "SELECT group_id, id, state FROM open_task",
    "outbox": "SELECT id, kind, attempts FROM outbox",
    "deleted groups": "SELECT group_id, step FROM deleted_groups WHERE finished_at IS NULL",
}


@dataclass(frozen=True, slots=True)
class MixedDatabase:
    url: str

    def number(self, group: UUID) -> int:
        [[number]] = self._ask("SELECT id FROM task_groups WHERE uuid = %s", group)
        return int(number)

    def rows(self, number: int) -> Rows:
        return Rows(
            results=tuple(Result(*row) for row in self._ask(of_groups.RESULTS, number)),
            failures=tuple(Failure(*row) for row in self._ask(of_groups.FAILURES, number)),
            counters=self._dict(of_groups.COUNTERS, (number,)),
            counted=self._dict(of_groups.COUNTED, {"group": number}),
            state=self._dict(of_groups.GROUP, (number,)),
            failed_hooks=tuple(
                (kind, host, at - CLOCKS_APART)
                for kind, host, at in self._ask(FAILED_HOOKS, number)
            ),
        )

    def rows_left(self, number: int) -> dict[str, int]:
        return {table: self._ask(asked, number)[0][0] for table, asked in TABLES.items()}

    def hosts_of(self, number: int) -> list[str]:
        """Manager ids of the hosts with an active lease."""
        return [host for (host,) in self._ask(HOSTS_OF, number)]

    def idle(self) -> list[tuple[int, str]]:
        """Pairs of a group that waits and a host that could serve it.

        Raises:
            psycopg.Error: the server is not there; this is not repeated.
        """
        with self._connect() as link:
            return link.execute(IDLE).fetchall()

    def leftovers(self) -> dict[str, tuple[str, ...]]:
        return {place: tuple(map(str, self._ask(asked))) for place, asked in LEFTOVERS.items()}

    def token_version(self, manager: UUID) -> int:
        [[version]] = self._ask("SELECT token_version FROM managers WHERE uuid = %s", manager)
        return int(version)

    def revoke(self, manager: UUID) -> None:
        """Raise the version of its tokens: none that it has is valid any more."""
        wanted = self.token_version(manager) + 1
        self._ask(
            "UPDATE managers SET token_version = %s WHERE uuid = %s RETURNING 1", wanted, manager
        )

    def incarnation(self, manager: UUID) -> int:
        """Of the agent whose hello was answered last."""
        [[found]] = self._ask("SELECT incarnation FROM managers WHERE uuid = %s", manager)
        return int(found)

    def _ask(self, statement: LiteralString, *parameters: Any) -> list[tuple[Any, ...]]:
        def ask() -> list[tuple[Any, ...]]:
            with self._connect() as link:
                return link.execute(statement, parameters).fetchall()

        return _patiently(ask)

    def _dict(self, statement: LiteralString, parameters: Any) -> dict[str, Any]:
        def ask() -> dict[str, Any]:
            with self._connect() as link, link.cursor(row_factory=dict_row) as cursor:
                [row] = cursor.execute(statement, parameters).fetchall()
                return row

        return _patiently(ask)

    def _connect(self) -> psycopg.Connection[tuple[Any, ...]]:
        return psycopg.connect(self.url, autocommit=True, connect_timeout=5)


def _patiently(ask: Callable[[], T]) -> T:
    """Repeat while the server is away."""

    def answer() -> list[T]:
        try:
            return [ask()]
        except psycopg.OperationalError:
            return []

    return wait_until(answer, PATIENCE_SECONDS, "PostgreSQL does not come back", interval=0.2)[0]
