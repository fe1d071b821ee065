"""The kept facts of a process beside those that are read without them."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from mitosis.scheduling.decide import decide
from mitosis.scheduling.facts import Host
from mitosis.scheduling.host_sets import Hosts, ordinals
from mitosis.scheduling.policy import HOUR
from mitosis.scheduling.snapshot import Snapshot
from mitosis.store.leases.fleet_snapshot import load_fleet
from mitosis.store.leases.kept_fleet import present_fleet
from mitosis.store.store import Store


def facts(snapshot: Snapshot, now: float) -> Mapping[str, Any]:
    """All facts of a snapshot, with hosts as their numbers instead of their bits."""

    def numbers(hosts: Hosts) -> frozenset[int]:
        return frozenset(snapshot.numbers[ordinal] for ordinal in ordinals(hosts))

    def of_host(host: Host) -> Host:
        moved = tuple(at for at in host.moved_at if at > now - HOUR)
        contact = None if host.in_contact else host.last_contact_at  # only for texts about silence
        return replace(host, moved_at=moved, last_contact_at=contact)

    return {
        "hosts": {number: of_host(state.fact) for number, state in snapshot.hosts.items()},
        "groups": {
            number: (
                replace(state.fact, members=0, removed=0),
                numbers(state.fact.members),
                numbers(state.fact.removed),
                state.work,
            )
            for number, state in snapshot.groups.items()
        },
        "leases": dict(snapshot.leases),
    }


def _differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> Iterator[tuple[Any, ...]]:
    for kind in one:
        for number in one[kind].keys() | other[kind].keys():
            pair = one[kind].get(number), other[kind].get(number)
            if pair[0] != pair[1]:
                yield kind, number, *pair


async def compare(store: Store, *, kept: bool | None = True) -> None:
    """The kept facts, brought up to date, are those read without them, and lead to the same decision.

    ``kept``: whether they are those of before, or all were read again.
    """
    before = getattr(store.fleet.value, "rows", None)
    async with store.fleet.turn() as turn, store.database.transaction() as connection:
        there = await present_fleet(turn, connection, store)
        fresh = await load_fleet(connection, store)
        of_kept, of_fresh = facts(there.snapshot, there.now), facts(fresh.snapshot, fresh.now)
        assert of_kept == of_fresh, list(_differences(of_kept, of_fresh))
        assert decide(there.snapshot, there.now) == decide(fresh.snapshot, fresh.now)
    assert kept is None or (store.fleet.value.rows is before) == kept
