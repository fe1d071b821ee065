"""The sets of members are those that the rule for one host and one group gives (C-32)."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from mitosis.store.leases.fleet import GroupRow
from mitosis.store.leases.member_sets import MemberSets
from mitosis.store.leases.membership import FormerTags, is_member
from tests.support.host_facts import group, host

TAGS = st.frozensets(st.sampled_from("abc"))
NUMBERS = st.frozensets(st.integers(0, 5))
FORMER = st.dictionaries(st.integers(1, 9), TAGS, max_size=2).map(
    lambda found: tuple(FormerTags(until, found[until]) for until in sorted(found))
)
HOSTS = st.lists(st.fixed_dictionaries({"tags": TAGS, "former_tags": FORMER}), max_size=5).map(
    lambda facts: [host(number, **one) for number, one in enumerate(facts)]
)


def _group(facts: dict[str, Any]) -> GroupRow:
    return group(**{**facts, "removed": facts["removed"] - facts["added"]})


MATCHES = st.sampled_from(["all", "any"])
GROUPS = st.fixed_dictionaries(
    {
        "member_tags": TAGS,
        "member_tag_match": MATCHES,
        "member_version": st.integers(0, 10),
        "assignment_method": st.sampled_from(["tag_matched", "user_specified"]),
        "added": NUMBERS,
        "removed": NUMBERS,
    }
).map(_group)


@given(hosts=HOSTS, groups=st.lists(GROUPS, max_size=4))
def test_a_set_has_the_hosts_for_which_the_rule_holds(hosts: list[Any], groups: list[Any]) -> None:
    sets = MemberSets(hosts, ordinal=lambda number: 2 * number)
    for one in groups:
        expected = sum(1 << 2 * each.number for each in hosts if is_member(each, one))
        assert sets.of(one) == expected
        assert sets.removed(one) & sets.of(one) == 0
