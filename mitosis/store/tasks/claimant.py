"""Decides whether a host or worker service that says something about an attempt has claimed it (P2, P10)."""

from typing import LiteralString

from mitosis.store.pg.statements import load

SQL = load("tasks/claimant.sql")


def with_claimant(statement: LiteralString) -> LiteralString:
    """Fill in ``$live_epoch$`` of a lease ``l``, and ``$claimed_here$`` of ``o`` by the claimant of ``v``."""
    for name in ("live_epoch", "live_epoch_of_service", "claimed_here"):
        statement = statement.replace(f"${name}$", SQL[name])
    return statement
