"""The plan of every statement beside a million tasks: no scan of a whole large table, no sort of a large set.

A statement is planned without its parameters, as PostgreSQL plans those that are prepared. None can be
forgotten: ``tests/support/statements.py`` finds them in the source.
"""

import json
from typing import LiteralString

import psycopg
import pytest

from mitosis.store.pg.database import BY_INDEX, WITHOUT_SORTS
from tests.support.large_tables import fill, large_tables
from tests.support.plans import faults, plan_of
from tests.support.statements import Found, all_statements

TASKS = 1_000_000
CASTS = {
    "managers/api_liveness.sql restart_managers": {"beat_at": "timestamptz"},
    "runs/creating.sql kept": dict.fromkeys(("start", "stop", "chunk"), "int"),
    "runs/creating.sql tasks_between": dict.fromkeys(("start", "stop", "chunk"), "int"),
}
"""Types that PostgreSQL cannot infer; psycopg sends them."""
SETTINGS: dict[str, tuple[LiteralString, ...]] = {
    "mitosis.store.groups.views.ids_of_page": (WITHOUT_SORTS,),
    "pg/outbox.sql expected": (BY_INDEX,),
}
"""What the product sets for a statement, by its name or the part before its number."""
REASONS: dict[str, str] = {
    "mitosis.store.pg.concurrently.IS_VALID": "of SQLAlchemy, in migrations: reads the catalogue",
}
"""Statements with a whole scan or a large sort, and why that is as it should be."""
PLANTED = (
    "SELECT count(*) FROM task",
    "SELECT id FROM open_task WHERE attempt = %(attempt)s",
    "SELECT task_id FROM task_result WHERE group_id > %(group)s ORDER BY detail::text",
    "SELECT epoch FROM leases WHERE end_reason = %(reason)s AND (state = 'ending' OR draining)",
)
"""Statements that are to be found."""


@pytest.mark.timeout(1800)
def test_no_statement_scans_a_large_table_or_sorts_a_large_set(database: str) -> None:
    fill(database, TASKS)
    large = large_tables(database, TASKS)
    assert {"task", "open_task", "task_result", "task_groups", "leases", "runs"} <= large
    found = {}
    planted = [Found(text, text) for text in PLANTED]
    with psycopg.connect(database) as connection:
        for statement in (*all_statements(), *planted):
            if statement.name in REASONS:
                continue
            part = statement.name.split(" ")[0]
            for setting in SETTINGS.get(statement.name, SETTINGS.get(part, ())):
                connection.execute(setting)
            plan = plan_of(connection, statement, CASTS.get(statement.name, {}))
            connection.rollback()
            if wrong := sorted(set(faults(plan, large))):
                found[statement.name] = wrong
    assert found.keys() >= set(PLANTED), "planted"
    found = {name: wrong for name, wrong in found.items() if name not in PLANTED}
    assert not found, json.dumps(found, indent=1)
