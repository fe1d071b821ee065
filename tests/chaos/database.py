"""Reads what a campaign left in PostgreSQL, past the API and the store."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, LiteralString

import psycopg
from psycopg.rows import dict_row

from mitosis.embedded.data_folder import DataFolder
from mitosis.embedded.postgres import EmbeddedPostgres
from tests.chaos.facts import Failure, Result

COUNTERS = """
SELECT total, unfinished, succeeded, failed, cancelled FROM group_live WHERE group_id = %s"""
COUNTED = """
SELECT (SELECT count(*) FROM task WHERE group_id = %(group)s) AS total,
       (SELECT count(*) FROM open_task WHERE group_id = %(group)s) AS unfinished,
       count(*) FILTER (WHERE state = 'succeeded') AS succeeded,
       count(*) FILTER (WHERE state = 'failed') AS failed,
       count(*) FILTER (WHERE state = 'cancelled') AS cancelled
  FROM task_result WHERE group_id = %(group)s"""
RESULTS = """
SELECT task_id, seq, state, attempt, kind, detail FROM task_result WHERE group_id = %s"""
FAILURES = "SELECT task_id, attempt, kind FROM task_failures WHERE group_id = %s"
HOOK_RUNS = "SELECT kind, state FROM hook_runs WHERE group_id = %s ORDER BY id"
GROUP = "SELECT state, result FROM group_live WHERE group_id = %s"
LEASE_LIVE = """
SELECT 1 FROM leases WHERE group_id = %s AND state = 'active' AND alive_until > now()"""


@dataclass(frozen=True, slots=True)
class CampaignDatabase:
    """One group in the embedded database of a data folder; a connection for each question."""

    url: str
    group: int
    """Number of the group."""

    @classmethod
    def of(cls, data_dir: Path, run_dir: Path, name: str) -> "CampaignDatabase":
        url = EmbeddedPostgres(DataFolder(data_dir, run_dir)).url()
        [[number]] = _rows(url, "SELECT id FROM task_groups WHERE name = %s", (name,))
        return cls(url, number)

    def lease_live(self) -> bool:
        """False also while the server is not there."""
        try:
            return bool(self._ask(LEASE_LIVE))
        except psycopg.OperationalError:
            return False

    def unsent(self) -> int:
        """Rows of the outbox."""
        [[count]] = _rows(self.url, "SELECT count(*) FROM outbox", ())
        return int(count)

    def results(self) -> tuple[Result, ...]:
        return tuple(Result(*row) for row in self._ask(RESULTS))

    def failures(self) -> tuple[Failure, ...]:
        return tuple(Failure(*row) for row in self._ask(FAILURES))

    def hook_runs(self) -> tuple[tuple[str, str], ...]:
        return tuple((kind, state) for kind, state in self._ask(HOOK_RUNS))

    def counters(self) -> dict[str, int]:
        return self._dict(COUNTERS, (self.group,))

    def counted(self) -> dict[str, int]:
        return self._dict(COUNTED, {"group": self.group})

    def state(self) -> dict[str, Any]:
        return self._dict(GROUP, (self.group,))

    def leftovers(self) -> dict[str, tuple[str, ...]]:
        """Rows that must be gone once a group is settled, whatever group they are of."""
        questions: dict[str, LiteralString] = {
            "leases": "SELECT epoch, state FROM leases WHERE state <> 'ended'",
            "environments": "SELECT group_id, state FROM environments WHERE state <> 'gone'",
            "open tasks": "SELECT group_id, id, state FROM open_task",
            "outbox": "SELECT id, kind, attempts FROM outbox",
        }
        return {
            place: tuple(map(str, _rows(self.url, question, ())))
            for place, question in questions.items()
        }

    def _ask(self, statement: LiteralString) -> list[tuple[Any, ...]]:
        return _rows(self.url, statement, (self.group,))

    def _dict(self, statement: LiteralString, parameters: Any) -> dict[str, Any]:
        with _connect(self.url) as link, link.cursor(row_factory=dict_row) as cursor:
            [row] = cursor.execute(statement, parameters).fetchall()
            return row


def _rows(url: str, statement: LiteralString, parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
    with _connect(url) as link:
        return link.execute(statement, parameters).fetchall()


def _connect(url: str) -> psycopg.Connection[tuple[Any, ...]]:
    return psycopg.connect(url, autocommit=True, connect_timeout=5)
