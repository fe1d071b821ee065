"""Reads runs from the database of a campaign, past the API and the store."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, LiteralString
from uuid import UUID

import psycopg
from psycopg.rows import dict_row

from mitosis.embedded.data_folder import DataFolder
from mitosis.embedded.postgres import EmbeddedPostgres
from tests.chaos.runs.facts import RunFacts, StepFacts
from tests.chaos.runs.plan import Moment, PlannedRun

PROGRESS = """
SELECT s.name, s.state, s.created, s.succeeded + s.failed + s.cancelled AS ended,
       EXISTS (SELECT FROM step_ends AS e WHERE e.step_id = s.id) AS uncounted
  FROM run_steps AS s JOIN runs AS r ON r.id = s.run_id WHERE r.uuid = %(run)s"""
RUN = "SELECT state, stopped_by, reason FROM runs WHERE uuid = %(run)s"
STEPS = """
SELECT s.name, s.state, s.total, s.created, s.succeeded, s.failed, s.cancelled, s.stopped_by
  FROM run_steps AS s JOIN runs AS r ON r.id = s.run_id WHERE r.uuid = %(run)s"""
RESULTS = """
SELECT s.name, p.start + t.n - 1 AS index, array_agg(r.state) FILTER (WHERE r.state IS NOT NULL) AS states,
       max(r.kind) AS kind
  FROM runs AS u JOIN run_steps AS s ON s.run_id = u.id JOIN step_tasks AS p ON p.step_id = s.id
 CROSS JOIN LATERAL unnest(p.task_ids) WITH ORDINALITY AS t (id, n)
  LEFT JOIN task_result AS r ON r.task_id = t.id
 WHERE u.uuid = %(run)s GROUP BY 1, 2 ORDER BY 1, 2"""
LEFTOVERS: Mapping[str, LiteralString] = {
    "leases": "SELECT epoch, state FROM leases WHERE state <> 'ended'",
    "environments": "SELECT group_id, state FROM environments WHERE state <> 'gone'",
    "open tasks": "SELECT group_id, id, state FROM open_task",
    "outbox": "SELECT id, kind, attempts FROM outbox",
    "uncounted ends": "SELECT * FROM step_ends",
    "runs": "SELECT id, state FROM runs WHERE ended_at IS NULL OR due",
    "steps": "SELECT id, state FROM run_steps WHERE ended_at IS NULL",
    "open groups of runs": """
        SELECT g.name, v.state FROM run_groups AS r JOIN task_groups AS g ON g.uuid = r.task_group
          JOIN group_live AS v ON v.group_id = g.id WHERE NOT r.standing AND v.state <> 'complete'""",
    "groups that are not marked as closed": "SELECT * FROM run_groups WHERE NOT closed AND NOT standing",
}


@dataclass(frozen=True, slots=True)
class RunDatabase:
    """A connection for each question."""

    url: str

    @classmethod
    def of(cls, data_dir: Path, run_dir: Path) -> "RunDatabase":
        return cls(EmbeddedPostgres(DataFolder(data_dir, run_dir)).url())

    def count(self) -> int:
        return int(self._ask("SELECT count(*) AS n FROM runs")[0]["n"])

    def is_at(self, run_id: UUID, moment: Moment) -> bool:
        """Return whether a run has come to a moment, or is past it. False also while the server is away."""
        try:
            steps = {row["name"]: row for row in self._ask(PROGRESS, run=run_id)}
        except psycopg.OperationalError:
            return False
        ended = {name: row["state"] not in {"waiting", "running"} for name, row in steps.items()}
        reached = {
            Moment.CREATED: True,
            Moment.GROUP: steps["prepare"]["created"] > 0,
            Moment.HALF: steps["split"]["ended"] >= 8,
            Moment.BETWEEN: ended["prepare"] or steps["prepare"]["uncounted"],
            Moment.CANCEL: steps["split"]["ended"] >= 3,
            Moment.CLEANUP: steps["clean"]["state"] == "running",
        }
        return bool(reached[moment] or all(ended.values()))

    def run(self, plan: PlannedRun, run_id: UUID) -> RunFacts:
        [row] = self._ask(RUN, run=run_id)
        results = self._ask(RESULTS, run=run_id)
        steps = [_step(step, results) for step in self._ask(STEPS, run=run_id)]
        return RunFacts(plan=plan, run_id=run_id, steps={one.name: one for one in steps}, **row)

    def leftovers(self) -> dict[str, tuple[str, ...]]:
        """Rows that must be gone when all runs have ended and the standing group is settled."""
        return {place: tuple(map(str, self._ask(text))) for place, text in LEFTOVERS.items()}

    def _ask(self, statement: LiteralString, **given: Any) -> list[dict[str, Any]]:
        with (
            psycopg.connect(self.url, autocommit=True, connect_timeout=5) as link,
            link.cursor(row_factory=dict_row) as cursor,
        ):
            return cursor.execute(statement, given).fetchall()


def _step(row: dict[str, Any], results: list[dict[str, Any]]) -> StepFacts:
    own = [one for one in results if one["name"] == row["name"]]
    return StepFacts(
        results={one["index"]: tuple(one["states"] or ()) for one in own},
        kinds=tuple(sorted({one["kind"] for one in own if one["kind"]})),
        **row,
    )
