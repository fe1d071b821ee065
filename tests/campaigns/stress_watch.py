"""Looks all the time for what no task group and no host may be in, during the verbs of ``stress.py``."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import LiteralString

from mitosis.contracts.errors import DatabaseUnavailable
from tests.support.fleet import Fleet
from tests.support.slowdown import Slowdown

LIMIT_SECONDS = 10.0
OWN_SLOWDOWN = 1.5
"""With nothing beside the campaign, whose own processes share two cores."""
MOST_SLOWDOWN = 6.0
"""A limit grows no further: a product that computes without end would excuse itself."""
LOOK_SECONDS = 1.0
WASTE: LiteralString = """
WITH work AS (
    SELECT g.id, g.user_group_id, g.assignment_method, coalesce(g.member_tags, g.tags) AS tags
      FROM task_groups AS g JOIN group_live AS v ON v.group_id = g.id
     WHERE v.settled_at IS NULL AND v.state IN ('open', 'closed') AND NOT v.discarding
       AND EXISTS (SELECT FROM open_task AS o WHERE o.group_id = g.id AND o.state = 0)
       AND NOT EXISTS (SELECT FROM leases AS l WHERE l.freed_for = g.id)
       AND NOT EXISTS (SELECT FROM leases AS l WHERE l.state <> 'ended' AND l.group_id = g.id)
), free AS (
    SELECT m.id, m.name, m.tags FROM managers AS m JOIN manager_live AS c ON c.manager_id = m.id
     WHERE NOT m.draining AND NOT c.offline AND c.last_contact_at > now() - interval '8 s'
       AND NOT EXISTS (SELECT FROM leases AS l WHERE l.manager_id = m.id AND l.state <> 'ended')
       AND NOT EXISTS (SELECT FROM environments AS e
                         LEFT JOIN group_live AS v
                           ON v.group_id = e.group_id AND v.state IN ('open', 'closed')
                        WHERE e.manager_id = m.id AND e.state <> 'gone'
                          AND (e.state <> 'ready' OR v.group_id IS NULL))
)
SELECT w.id, f.name FROM work AS w CROSS JOIN free AS f
  LEFT JOIN task_group_managers AS t ON t.task_group_id = w.id AND t.manager_id = f.id
 WHERE CASE t.assignment_method WHEN 'user_specified' THEN true WHEN 'removed' THEN false
       ELSE w.assignment_method = 'tag_matched' AND w.tags <@ f.tags END
   AND NOT EXISTS (SELECT FROM host_failures AS h
                    WHERE h.manager_id = f.id AND (h.group_id = w.id OR h.kind = 'unreachable')
                      AND (h.next_at IS NULL OR h.next_at > now()))"""
OVER: LiteralString = """
SELECT g.id, 'more than max_managers' AS name FROM leases AS l JOIN task_groups AS g ON g.id = l.group_id
 WHERE l.state IN ('offered', 'active') AND NOT l.draining
 GROUP BY g.id HAVING count(*) > g.max_managers"""
PASSING = (WASTE, OVER)
"""What a round ends within the limit."""
TWO_LEASES: LiteralString = """
SELECT l.manager_id AS id, 'two leases' AS name FROM leases AS l WHERE l.state <> 'ended'
 GROUP BY l.manager_id HAVING count(*) > 1"""
FORBIDDEN: LiteralString = """
SELECT g.id, m.name || CASE WHEN m.draining THEN ' is draining' ELSE ' is no member' END AS name
  FROM leases AS l JOIN task_groups AS g ON g.id = l.group_id JOIN managers AS m ON m.id = l.manager_id
  LEFT JOIN task_group_managers AS t ON t.task_group_id = g.id AND t.manager_id = m.id
 WHERE l.state IN ('offered', 'active') AND NOT l.draining
   AND (m.draining OR NOT CASE t.assignment_method WHEN 'user_specified' THEN true WHEN 'removed' THEN false
        ELSE g.assignment_method = 'tag_matched' AND coalesce(g.member_tags, g.tags) <@ m.tags END)"""
NEVER = (TWO_LEASES, FORBIDDEN)
"""What no transaction leaves: drain, removal and refresh end the leases that are forbidden from then on."""


@dataclass
class Watch:
    """What was found, and how long it lasted; what may never be has no limit.

    The limit holds as it is where nothing else runs. Beside other work everything that is computed takes
    longer, by a factor that is measured over the same time and that the limit grows with.
    """

    it: Fleet
    slowdown: Slowdown = field(default_factory=Slowdown)
    longest: float = 0.0
    allowed: float = LIMIT_SECONDS
    """For the longest."""
    looks: int = 0
    missed: int = 0
    """Looks that PostgreSQL did not answer."""
    late: dict[tuple[int, str], str] = field(default_factory=dict)
    _since: dict[tuple[int, str], float] = field(default_factory=dict)

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            now = time.monotonic()
            self.slowdown.sample(now)
            try:
                await self._look()
            except DatabaseUnavailable:
                self.missed += 1
            await asyncio.sleep(LOOK_SECONDS)

    async def _look(self) -> None:
        pairs = await self._found(PASSING)
        for number, what in await self._found(NEVER):
            self.late[number, what] = f"{number}: {what}"
        self.looks += 1
        now = time.monotonic()
        self._since = {pair: self._since.get(pair, now) for pair in pairs}
        for pair, since in self._since.items():
            self._judge(pair, now, since)

    async def _found(self, statements: Sequence[LiteralString]) -> set[tuple[int, str]]:
        rows = [row for statement in statements for row in await self.it.rows(statement)]
        return {(int(row["id"]), str(row["name"])) for row in rows}

    def _judge(self, pair: tuple[int, str], now: float, since: float) -> None:
        waited, slowdown = now - since, self.slowdown.since(since)
        allowed = LIMIT_SECONDS * max(1.0, min(slowdown, MOST_SLOWDOWN) / OWN_SLOWDOWN)
        if waited > self.longest:
            self.longest, self.allowed = waited, allowed
        if waited > allowed:
            self.late[pair] = (
                f"{pair[0]}, {pair[1]}: {waited:.1f} s of {allowed:.1f} s"
                f" (a second of computing took {slowdown:.1f} s)"
            )
