"""Judges the hooks of a campaign: every setup that began is torn down once, before the host is used again."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum

from tests.chaos.mixed.explained import disturbed
from tests.chaos.mixed.facts import GroupFacts, HookLine, MixedFacts


class Place(StrEnum):
    """What a host is for one group."""

    CLEAN = "clean"
    HALF = "half prepared"
    READY = "ready"
    TEARING = "being torn down"


NEXT: dict[tuple[Place, bool, str], Place] = {
    (Place.CLEAN, True, "setup"): Place.HALF,
    (Place.HALF, False, "setup"): Place.READY,
    (Place.HALF, True, "teardown"): Place.TEARING,
    (Place.READY, True, "teardown"): Place.TEARING,
    (Place.TEARING, False, "teardown"): Place.CLEAN,
}
"""Place, begin or end of a hook, its kind → the place after it."""
REPEATED: dict[tuple[Place, bool, str], Place] = {
    (Place.HALF, True, "setup"): Place.HALF,
    (Place.READY, True, "setup"): Place.HALF,
    (Place.TEARING, True, "teardown"): Place.TEARING,
    (Place.CLEAN, True, "teardown"): Place.TEARING,
}
"""The same where the agent died before it had written, or reported, how the hook ended."""


def hooks_are_paired(facts: MixedFacts) -> Iterator[str]:
    for group in facts.groups:
        for host, lines in _by_host(group).items():
            place, last = Place.CLEAN, 0
            for line in lines:
                step = (place, line.began, line.kind)
                after = NEXT.get(step)
                if after is None and disturbed(facts, host, last, line.at):
                    after = REPEATED.get(step)
                if after is None:
                    yield f"{group.name} on {host}: {line} while it is {place}"
                    break
                place, last = after, line.at
            else:
                if place is not Place.CLEAN and not _failed_to_clean(group, host):
                    yield f"{group.name} on {host}: it is {place} at the end"


def _failed_to_clean(group: GroupFacts, host: str) -> bool:
    """Its teardown failed, and that was said: by the rules it is cleaned by hand."""
    said = group.rows.state["result"] == "teardown_degraded"
    return said and ("teardown", host) in {(k, h) for k, h, _ in group.rows.failed_hooks}


def no_setup_begins_on_a_dirty_host(facts: MixedFacts) -> Iterator[str]:
    """None while another group is half prepared or torn down there, or has settled and is not cleaned."""
    lines = sorted(
        ((line, group) for group in facts.groups for line in group.hooks),
        key=lambda pair: pair[0].at,
    )
    open_hooks: defaultdict[str, dict[int, HookLine]] = defaultdict(dict)
    for line, group in lines:
        there = open_hooks[line.host]
        if line.began and line.kind == "setup":
            for number, other in there.items():
                if number != group.number and _is_dirty(facts, number, other, line):
                    yield f"{group.name} began its setup on {line.host} beside {other}"
        if line.kind == "teardown" and not line.began:
            there.pop(group.number, None)
        else:
            there[group.number] = line


def _is_dirty(facts: MixedFacts, number: int, last: HookLine, at: HookLine) -> bool:
    other = next(group for group in facts.groups if group.number == number)
    ready = last.kind == "setup" and not last.began
    if _failed_to_clean(other, last.host):
        return False
    return not ready or other.settled_at < at.at


def failed_hooks_had_a_reason(facts: MixedFacts) -> Iterator[str]:
    for group in facts.groups:
        for kind, host, at in group.rows.failed_hooks:
            if not disturbed(facts, host, at, at) and group.plan.goes_on:
                yield f"{group.name}: its {kind} hook failed on {host}"


def _by_host(group: GroupFacts) -> dict[str, list[HookLine]]:
    found: defaultdict[str, list[HookLine]] = defaultdict(list)
    for line in sorted(group.hooks, key=lambda line: line.at):
        found[line.host].append(line)
    return found


HOOK_CHECKS: tuple[Callable[[MixedFacts], Iterable[str]], ...] = (
    hooks_are_paired,
    no_setup_begins_on_a_dirty_host,
    failed_hooks_had_a_reason,
)
