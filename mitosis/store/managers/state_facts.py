"""Reads the facts from which the state of a host is derived; every statement uses the same expression."""

from collections.abc import Mapping
from typing import LiteralString

import msgspec

from mitosis.contracts.lifecycle import ManagerState
from mitosis.contracts.manager_state import ManagerFacts, derived_manager_state
from mitosis.store.pg.statements import load

_PLACE = "$state_facts$"
_EXPRESSION = load("managers/views.sql")["state_facts"]


def with_state_facts(statement: LiteralString) -> LiteralString:
    """Fill the expression into ``statement``, whose parameters need ``host_lost_after``.

    Raises:
        ValueError: the statement does not contain ``$state_facts$``.
    """
    if _PLACE not in statement:
        raise ValueError(f"the statement does not say {_PLACE}")
    return statement.replace(_PLACE, _EXPRESSION)


def state_of(facts: Mapping[str, object]) -> ManagerState:
    """Return the state derived from the column of :func:`with_state_facts`."""
    return derived_manager_state(msgspec.convert(facts, ManagerFacts))
