"""Decides whether the manager that says something about an attempt has claimed it (protocol P2)."""

from typing import LiteralString

from mitosis.store.pg.statements import load

SQL = load("tasks/claimant.sql")


def with_claimant(statement: LiteralString) -> LiteralString:
    """Fill in ``$live_epoch$`` of a lease ``l``, and ``$claimed_here$`` of ``o`` by the manager of ``v``."""
    for name in ("live_epoch", "claimed_here"):
        statement = statement.replace(f"${name}$", SQL[name])
    return statement
