"""Every column that some statement writes is read by a statement, and every column that is read is written.

A column that is only written looks like a feature and has no effect: so was the list of managers of a task
group, and the end of affinity. Static over the SQL of the store and its use of SQLAlchemy.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache

import pytest

from mitosis.store.pg.tables import METADATA
from tests.support.checkout import ROOT

Name = tuple[str, str]
"""A table, and a column of it."""
STORE = ROOT / "mitosis/store"
NOT_READ: Mapping[Name, str] = {
    ("group_hosts", "group_id"): "a task group that is deleted takes its rows along",
    ("group_services", "group_id"): "as above",
    ("fleet_changes", "manager_id"): "read through the name of a part of the statement",
    ("fleet_changes", "group_id"): "as above",
    ("managers", "creator_id"): "who registered a host, for an administrator with psql",
    ("worker_services", "creator_id"): "as above, of a worker service",
    ("worker_services", "updated_at"): "S004-12 names it",
    ("worker_named_tasks", "created_at"): "S004-13 names it",
    ("user_groups", "created_at"): "when it was made, for an administrator with psql",
    ("deleted_groups", "deleted_at"): "as above",
    ("deleted_groups", "uuid"): "which task group it was, for an administrator with psql",
    ("user_groups", "creator_id"): "as above, who made it",
    ("user_groups", "uuid"): "user groups are named in every call; none takes this id",
    ("environments", "created_at"): "as above",
    ("submission", "created_at"): "as above",
    ("manager_config", "id"): "S002-171 names the columns of this table",
    ("manager_config", "updated_at"): "as above",
    (
        "task_group_templates",
        "id",
    ): "a key that no other table refers to; its order is that of creation",
    ("task_group_managers", "matched_tags"): "S000-09 names it; the tags are computed (C-32)",
    ("leases", "worker_tags"): "of an earlier design of leases of worker services (P10)",
    **{
        ("deleted_group_days", name): "S002-212: kept for ever, for an administrator with psql"
        for name in (
            *("user_group_id", "kind", "result", "groups", "tasks", "succeeded", "failed"),
            *("cancelled", "group_seconds", "run_seconds"),
        )
    },
    ("service_claims", "claimed_at"): "when it was claimed, for an administrator with psql",
}
"""And why."""
NOT_WRITTEN: Mapping[Name, str] = {
    ("fleet_changes", "manager_id"): "triggers of the migration write it",
    ("fleet_changes", "group_id"): "as above",
    ("task_group_managers", "matched_tags"): NOT_READ["task_group_managers", "matched_tags"],
    ("leases", "worker_tags"): NOT_READ["leases", "worker_tags"],
    ("user_groups", "state"): "no verb locks a user group; an administrator can",
    ("api_pulse", "only_row"): "it allows one row",
    ("managers", "groups_known"): "its default: it has been registered since",
    ("worker_services", "groups_known"): "as above",
    **{
        ("step_ends", name): "the trigger of a migration writes it"
        for name in ("step_id", "task_id", "state")
    },
    **{
        ("schedule_spans", name): "a trigger of a migration writes it"
        for name in ("schedule_id", "timing", "time_zone", "start_at", "end_at", "to_at")
    },
}
"""And why. Keys and times that a default fills in are written by it."""
_COMMENT = re.compile(r"--[^\n]*")
_TEXT = re.compile(r"'[^']*'")
_TABLE = re.compile(
    r"(?:\b(?:FROM|JOIN|INTO|UPDATE|USING)|,)\s+\(?(\w+)(?:\s+(?:AS\s+)?(?!FROM\b)(\w+))?",
    re.IGNORECASE,
)
_INSERT = re.compile(r"\bINSERT\s+INTO\s+(\w+)(?:\s+AS\s+\w+)?\s*\(", re.IGNORECASE)
_UPDATE = re.compile(r"\bUPDATE\s+(\w+)(?:\s+AS\s+\w+)?\s+SET\s", re.IGNORECASE)
_CONFLICT = re.compile(r"\bDO\s+UPDATE\s+SET\s", re.IGNORECASE)
_END_OF_SET = re.compile(r"\b(?:FROM|WHERE|RETURNING)\b", re.IGNORECASE)
_KEYWORDS = {"as", "on", "set", "where", "order", "group", "left", "join", "cross", "for", "using"}


@dataclass(frozen=True)
class Use:
    """What one statement does with columns."""

    written: frozenset[Name]
    read: frozenset[Name]


def use_of(statement: str) -> Use:
    """Find the columns that a statement writes, and those that it reads for more than to keep them."""
    text = _TEXT.sub("''", _COMMENT.sub("", statement))
    written: set[Name] = set()
    for match in _INSERT.finditer(text):
        inside = _until_closed(text, match.end())
        written |= {(match[1], name) for name in re.findall(r"\w+", inside)}
        text = _blanked(text, match.end(), len(inside))
    for match in [*_UPDATE.finditer(text), *_CONFLICT.finditer(text)]:
        table = match[1] if match.re is _UPDATE else _table_before(text, match.start())
        end = match.end()
        for part in _parts(text, match.end()):
            name, _, value = part.partition("=")
            columns = re.findall(r"\w+", name)
            written |= {(table, column) for column in columns}
            kept = value
            for column in columns:
                kept = re.sub(rf"\b{column}\b", "_" * len(column), kept)
            text = (
                text[:end]
                + "_" * len(name)
                + part[len(name) : len(part) - len(value)]
                + kept
                + text[end + len(part) :]
            )
            end += len(part) + 1
    return Use(frozenset(written), frozenset(_reads(text)))


def _reads(text: str) -> Iterator[Name]:
    tables = dict(_aliases(text))
    found = [(tables.get(alias), column) for alias, column in re.findall(r"\b(\w+)\.(\w+)", text)]
    plain = re.sub(r"\b\w+\.\w+|\bAS\s+\w+", "", text)
    for word in set(re.findall(r"\b[a-z_]+\b", plain)):
        of = [one for one in set(tables.values()) if word in METADATA.tables[one].columns]
        found += [(one, word) for one in of if len(of) == 1]  # else PostgreSQL asks which table's
    for table, column in found:
        if table is not None and column in METADATA.tables[table].columns:
            yield table, column


def _aliases(text: str) -> Iterator[tuple[str, str]]:
    """Yield what stands for a table in a statement, and the table."""
    for table, alias in _TABLE.findall(text):
        if table in METADATA.tables:
            yield table, table
            if alias and alias.lower() not in _KEYWORDS:
                yield alias, table


def _until_closed(text: str, start: int) -> str:
    depth = 1
    for place in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[place], 0)
        if not depth:
            return text[start:place]
    raise AssertionError(text)


def _parts(text: str, start: int) -> Iterator[str]:
    """Yield the assignments after SET, as they stand in the text."""
    depth, begun = 0, start
    for place in range(start, len(text) + 1):
        letter = text[place] if place < len(text) else ")"
        ends = depth == 0 and _END_OF_SET.match(text, place) and not text[place - 1].isalnum()
        if ends or (depth == 0 and letter == ")"):
            yield text[begun:place]
            return
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if letter == "," and depth == 0:
            yield text[begun:place]
            begun = place + 1


def _table_before(text: str, end: int) -> str:
    return str(_INSERT.findall(text[:end])[-1])


def _blanked(text: str, start: int, length: int) -> str:
    return text[:start] + "_" * length + text[start + length :]


@cache
def uses() -> tuple[Use, ...]:
    """Of every statement of the store."""
    statements = []
    expressions: dict[str, str] = {}
    for file in sorted(STORE.rglob("*.sql")):
        named = re.split(r"^-- name: (\w+)\s*$", file.read_text(), flags=re.MULTILINE)[1:]
        statements += named[1::2]
        expressions |= zip(named[::2], named[1::2], strict=True)
    found = [use_of(_filled(statement, expressions)) for statement in statements]
    core: set[Name] = set()
    for file in sorted(STORE.rglob("*.py")):
        if file.name != "tables.py":
            core |= set(_core_reads(file.read_text()))
    return (*found, Use(frozenset(), frozenset(core)))


def _filled(statement: str, expressions: Mapping[str, str]) -> str:
    """Put expressions of other files in their places, such as ``$member$``."""
    for _ in range(3):
        parts: list[str] = re.split(r"\$(\w+)\$", statement)
        parts[1::2] = [expressions.get(name, "") for name in parts[1::2]]
        statement = "".join(parts)
    return statement


def _core_reads(text: str) -> Iterator[Name]:
    """Columns that Python names by SQLAlchemy, whatever the table is called there."""
    for table, column in re.findall(r"\b(\w+)\.c\.(\w+)", text):
        for name in METADATA.tables:
            if column in METADATA.tables[name].columns and (table == name or len(table) <= 2):
                yield name, column


def columns(what: str) -> set[Name]:
    """All columns that are ``read``, or ``written``."""
    return {name for use in uses() for name in getattr(use, what) if name[0] in METADATA.tables}


def _of_tables() -> Iterator[tuple[Name, bool]]:
    """Yield every column, and whether something that differs from row to row fills it in."""
    for table in METADATA.sorted_tables:
        for column in table.columns:
            default = getattr(column.server_default, "arg", None)
            yield (table.name, column.name), column.identity is not None or "(" in str(default)


def test_every_column_is_read() -> None:
    """Of the tables; a column that is only kept as it is has not been read."""
    unread = {name for name, _ in _of_tables()} - columns("read")
    assert unread == set(NOT_READ), "read it, drop it, or say why it stays"


def test_every_column_is_written() -> None:
    unwritten = {name for name, filled in _of_tables() if not filled} - columns("written")
    assert unwritten == set(NOT_WRITTEN), "write it, drop it, or say why it stays"


def test_statements_name_columns_that_exist() -> None:
    known = {name for name, _ in _of_tables()}
    assert columns("written") <= known
    assert len(columns("written")) > 150, "the statements are not understood any more"


@pytest.mark.parametrize(
    ("statement", "written", "read"),
    [
        ("UPDATE leases AS l SET renewed = true", "renewed", ""),
        ("UPDATE leases AS l SET renewed = l.renewed OR l.draining", "renewed", "draining"),
        (
            "UPDATE leases SET busy_at = now(), (state, ended_at) = ('x', now()) WHERE epoch = 1",
            "busy_at state ended_at",
            "epoch",
        ),
        (
            "INSERT INTO leases (group_id, state) SELECT l.epoch, '' FROM leases AS l"
            " ON CONFLICT (manager_id) DO UPDATE SET state = excluded.state",
            "group_id state",
            "epoch manager_id",
        ),
        ("SELECT l.epoch AS kind FROM (leases AS l JOIN managers AS m ON true)", "", "epoch"),
        ("WITH x AS (SELECT taken_at FROM leases) SELECT 1 -- offered_at", "", "taken_at"),
        ("SELECT renewed, state FROM leases AS l, environments AS e", "", "renewed"),
    ],
)
def test_what_a_statement_does_with_columns_of_leases(
    statement: str, written: str, read: str
) -> None:
    use = use_of(statement)
    assert {column for table, column in use.written if table == "leases"} == set(written.split())
    assert {column for table, column in use.read if table == "leases"} == set(read.split())
