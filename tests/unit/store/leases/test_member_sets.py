"""The sets of members are those that the rule for one host and one group gives (C-32)."""

from time import process_time

from mitosis.store.leases.member_sets import MemberSets
from tests.support.host_facts import group, host


def test_ten_thousand_hosts_and_a_thousand_groups_are_no_ten_million_comparisons() -> None:
    """CPU time, with room for a slow machine; comparing each pair takes 10 s and more."""
    hosts = [host(n, tags=frozenset({f"t{n % 50}", f"u{n % 7}"})) for n in range(10_000)]
    groups = [group(tags=frozenset({f"t{n % 50}"}), removed=frozenset({n})) for n in range(1000)]
    began = process_time()
    sets = MemberSets(hosts, ordinal=lambda number: number)
    sizes = [sets.of(one).bit_count() for one in groups]
    assert process_time() - began < 2
    assert set(sizes) <= {199, 200}
