"""Rows that came one change after another lead to the facts to which the same rows lead at once."""

from dataclasses import replace
from typing import Any

from mitosis.scheduling.policy import Policy
from mitosis.store.leases.fleet import HostRow
from mitosis.store.leases.fleet_rows import FleetRows
from mitosis.store.leases.kept_check import differing_hosts
from tests.support.host_facts import NO_LEASE, NOW, group, host, lease


def test_a_group_that_only_holds_leases_is_forgotten_with_the_last_of_them() -> None:
    def leased(number: int, **facts_of_lease: Any) -> HostRow:
        return replace(
            host(number), **{**NO_LEASE, **lease(**facts_of_lease), "lease_number": number}
        )

    rows = FleetRows(Policy())
    rows.change(NOW, [leased(1), leased(2)], [])
    assert list(rows.snapshot.groups) == [7]
    rows.change(NOW, [host(1)], [])
    assert list(rows.snapshot.groups) == [7]
    rows.change(NOW, [], [], gone=[2])
    assert not rows.snapshot.groups


def test_what_differs_is_found_and_what_may_differ_is_not() -> None:
    def rows(**facts_of_first: Any) -> FleetRows:
        made = FleetRows(Policy())
        made.change(NOW, [host(1, **{**NO_LEASE, **facts_of_first}), host(2)], [group()])
        return made

    usual = rows(**lease())
    may = {"last_contact_at": NOW - 2.0, "moved_at": (NOW - 4000.0,)}
    assert not differing_hosts(usual, rows(**lease(), **may), NOW)
    others: list[dict[str, Any]] = [
        {"draining": True},
        {"former_tags": ()},
        {"last_contact_at": NOW - 60.0},
        {"moved_at": (NOW - 1.0,)},
        {"unclean": frozenset({9})},
        {"affinity_until": NOW},
    ]
    found = [differing_hosts(usual, rows(**{**lease(), **other}), NOW) for other in others]
    assert found == [[1], [], [1], [1], [1], [1]]
    gone = FleetRows(Policy())
    gone.change(NOW, [host(2)], [group()])
    assert differing_hosts(usual, gone, NOW) == [1]
    assert differing_hosts(gone, usual, NOW) == [1]
