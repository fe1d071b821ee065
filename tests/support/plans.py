"""What PostgreSQL would do for a statement whose parameters it does not know, and what is wrong with it."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import psycopg

from tests.support.statements import Found

ROWS = 20_000
"""More rows are a large set."""
PAGE = "100"
"""The limit of pages and chunks: PostgreSQL would take an unknown one for a tenth of the table."""
_PARAMETER = re.compile(r"%%|(?P<limit>\b(?:LIMIT|OFFSET) )?%(?:\((?P<name>\w+)\))?[sbt]")
Plan = Mapping[str, Any]


def generic(text: str, casts: Mapping[str, str]) -> str:
    """Return the statement with ``$1`` for psycopg's placeholders; ``casts``: types that say too little."""
    names: list[str] = []

    def numbered(found: re.Match[str]) -> str:
        if found[0] == "%%":
            return "%"
        if found["limit"]:
            return found["limit"] + ("0" if found["limit"].startswith("OFFSET") else PAGE)
        name = found["name"] or str(len(names))
        if name not in names:
            names.append(name)
        cast = f"::{casts[name]}" if name in casts else ""
        return f"${names.index(name) + 1}{cast}"

    return _PARAMETER.sub(numbered, text)


def plan_of(
    connection: psycopg.Connection[Any], statement: Found, casts: Mapping[str, str]
) -> Plan:
    """Return the generic plan of a statement."""
    text = "EXPLAIN (GENERIC_PLAN, FORMAT JSON) " + generic(statement.text, casts)
    # Without parameters psycopg would look for placeholders of its own.
    row = connection.execute(text.encode()).fetchone()
    assert row is not None
    plan: Plan = row[0][0]["Plan"]
    return plan


def faults(plan: Plan, large: frozenset[str]) -> Iterator[str]:
    """Yield the scans of whole large tables and indexes, and the sorts of large sets."""
    for node, limited in _nodes(plan, limited=False):
        table, kind = node.get("Relation Name"), node["Node Type"]
        searches = {"Index Cond", "Recheck Cond", "TID Cond"} & node.keys()
        if table in large and kind == "Seq Scan":
            yield f"sequential scan of {table}"
        elif kind.startswith("Index") and node["Index Name"] in large and not (searches or limited):
            yield f"whole index {node['Index Name']} of {table}"
        elif kind == "Sort" and node["Plan Rows"] > ROWS:
            yield f"sort of {node['Plan Rows']:,} rows by {', '.join(node['Sort Key'])}"


def _nodes(plan: Plan, *, limited: bool) -> Iterator[tuple[Plan, bool]]:
    """Yield the nodes, and whether a limit ends each early: nothing below sorts, or gathers, all rows."""
    yield plan, limited
    kind = plan["Node Type"]
    inside = kind == "Limit" or (limited and kind not in ("Sort", "Aggregate", "Hash", "SetOp"))
    for below in plan.get("Plans", ()):
        yield from _nodes(below, limited=inside)
