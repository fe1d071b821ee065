"""Which host goes to which group: pure rules."""

import pytest

from mitosis.store.leases.eligibility import CONTEST_CONDITIONS
from mitosis.store.leases.matching import Offer, match, usable
from tests.support.host_facts import GROUP, group, host, lease


@pytest.mark.spec("S002-42", "S002-146")
def test_the_first_group_takes_what_it_wants_the_next_what_is_left() -> None:
    idle = {number: host(number) for number in (1, 2, 3)}
    groups = [group(10, ready=4), group(20, ready=100)]
    assert match(groups, idle) == [Offer(10, 1), Offer(10, 2), Offer(20, 3)]
    assert idle == {}


def test_leases_there_are_count() -> None:
    idle = {1: host(1)}
    assert match([group(ready=4, live_leases=2)], idle) == []
    assert match([group(ready=5, live_leases=2)], idle) == [Offer(GROUP, 1)]


def test_warm_hosts_go_first_and_those_warm_for_others_last() -> None:
    idle = {
        1: host(1, warm=frozenset({9})),
        2: host(2),
        3: host(3, warm=frozenset({GROUP})),
    }
    assert match([group(ready=6)], dict(idle)) == [Offer(GROUP, n) for n in (3, 2, 1)]


def test_only_usable_hosts_are_matched_and_only_by_the_conditions_given() -> None:
    hosts = [host(1, lease=lease()), host(2, draining=True), host(3)]
    assert list(usable(hosts)) == [3]
    assert list(usable(hosts, CONTEST_CONDITIONS)) == [1, 3]
    torn = {1: host(1, unclean=frozenset({GROUP}))}
    assert match([group()], dict(torn)) == []
    assert match([group()], dict(torn), CONTEST_CONDITIONS) == [Offer(GROUP, 1)]
