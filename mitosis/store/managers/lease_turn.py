"""The next time at which the clock may take a lease from its task group, in words. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any

from mitosis.contracts.control import LeaseTurn


def lease_turn(facts: Mapping[str, Any]) -> LeaseTurn | None:
    """Return the first of the turns that are to come; None: there is none.

    ``facts``: ``turn_facts`` of ``views.sql``, about a lease that is ACTIVE.
    """
    return min(_turns(facts), key=lambda turn: turn.in_seconds, default=None)


def _turns(facts: Mapping[str, Any]) -> Iterator[LeaseTurn]:
    holder = facts["group_name"]
    if (seconds := facts["ask_back_in_seconds"]) is not None:
        winner = facts["next_group"] or "another task group"
        why = f"what has not started is asked back from {holder}: the host goes to {winner}"
        yield LeaseTurn(what="ask_back", why=why, in_seconds=seconds)
    if facts["leaves"]:
        return
    if (seconds := facts["idle_in_seconds"]) is not None:
        why = f"idle for long enough under {holder}: a task group that waits may take the host"
        yield LeaseTurn(what="idle", why=why, in_seconds=seconds)
    if (seconds := facts["affinity_in_seconds"]) is not None:
        why = (
            f"the lease of {holder} is renewed, unless a task group that goes first takes the host"
        )
        yield LeaseTurn(what="affinity", why=why, in_seconds=seconds)
