"""Says how far the drain of a host is. Pure."""

from collections.abc import Mapping
from typing import Any

from mitosis.contracts.http import DrainInfo


def drain_info(facts: Mapping[str, Any], environments: Mapping[str, str]) -> DrainInfo:
    """Return what a drained host waits for.

    Args:
        facts: ``drain_facts`` of a row of ``show``.
        environments: state by task group, of those that are not gone.
    """
    waits = []
    if facts["lease"] is not None:
        tasks, group = facts["tasks"], facts["group_name"] or "a deleted task group"
        what = f"{tasks} task{'s' * (tasks != 1)}" if tasks else "the lease"
        waits.append(f"{what} of {group} to end")
    held = facts["group_name"] if facts["lease"] is not None else None
    away = ", for which its agent must be started" if facts["offline"] else ""
    waits += [f"the teardown of {name}{away}" for name in sorted(environments) if name != held]
    return DrainInfo(since=facts["since"], reason=facts["reason"], empty=not waits, waits_for=waits)
