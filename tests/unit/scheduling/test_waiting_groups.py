"""The task groups that wait, by what they share: kept one change at a time, so it must follow each change."""

from mitosis.scheduling.policy import Order, Policy
from mitosis.scheduling.waiting_groups import WaitingKind
from tests.support.scheduling import OTHERS, USERS, Fleet


def kinds(fleet: Fleet) -> dict[tuple[int, int], WaitingKind]:
    """By priority and user group."""
    found = fleet.snapshot.waiting.kinds.values()
    return {(kind.priority, kind.profile.user_group): kind for kind in found}


def waiting(kind: WaitingKind) -> list[int]:
    return sorted(key.number for bucket in kind.buckets.values() for key in bucket.line)


def test_task_groups_of_one_priority_and_user_group_are_one_kind() -> None:
    fleet = Fleet(3)
    fleet.group(1, on=[1])
    fleet.group(2, on=[1, 2])
    fleet.group(3, on=[3], priority=1)
    fleet.group(4, on=[3], user_group=OTHERS)
    fleet.group(5, ready=0)
    found = kinds(fleet)
    assert {name: waiting(kind) for name, kind in found.items()} == {
        (0, USERS): [1, 2],
        (1, USERS): [3],
        (0, OTHERS): [4],
    }
    assert found[0, USERS].members == 0b011
    assert found[0, OTHERS].members == 0b100


def test_its_members_are_those_of_the_task_groups_that_wait_now() -> None:
    fleet = Fleet(3)
    fleet.group(1, on=[1, 2])
    fleet.group(2, on=[2, 3])
    fleet.group(3, on=[2, 3])
    kind = kinds(fleet)[0, USERS]
    assert kind.members == 0b111
    fleet.work(2, ready=0)
    assert kind.members == 0b111, "the third has the same members"
    fleet.change_group(3, members=0b100)
    assert kind.members == 0b111
    fleet.work(1, ready=0)
    assert kind.members == 0b100
    fleet.work(3, ready=0)
    assert not fleet.snapshot.waiting
    fleet.work(1, ready=1)
    assert kinds(fleet)[0, USERS].members == 0b011


def test_in_the_order_of_age_the_priority_makes_no_difference() -> None:
    fleet = Fleet(1, Policy(order=Order.AGE))
    fleet.group(1, priority=5)
    fleet.group(2, priority=-5)
    assert waiting(kinds(fleet)[0, USERS]) == [1, 2]


def test_durations_of_setups_are_there_once_while_some_task_group_waits_with_them() -> None:
    fleet = Fleet(1)
    for number, seconds in ((1, 30.0), (2, 10.0), (3, 30.0)):
        fleet.group(number, setup_seconds=seconds)
    fleet.group(4, ready=0, setup_seconds=99.0)
    setups = fleet.snapshot.waiting.setups
    assert setups == [10.0, 30.0]
    fleet.work(1, setup_seconds=20.0)
    assert setups == [10.0, 20.0, 30.0]
    fleet.work(3, ready=0)
    assert setups == [10.0, 20.0]
    fleet.change_group(2, priority=7)
    assert setups == [10.0, 20.0]
    fleet.snapshot.drop_group(2)
    assert setups == [20.0]


def test_a_bucket_has_the_setups_of_those_that_wait_in_it() -> None:
    fleet = Fleet(2)
    for number, seconds in ((1, 30.0), (2, 10.0), (3, 30.0)):
        fleet.group(number, setup_seconds=seconds)
    fleet.group(4, on=[2], setup_seconds=5.0)
    bucket = kinds(fleet)[0, USERS].buckets[0b11]
    assert bucket.setups == [10.0, 30.0, 30.0]
    fleet.work(3, setup_seconds=20.0)
    assert bucket.setups == [10.0, 20.0, 30.0]
    fleet.change_group(2, members=0b10)
    assert bucket.setups == [20.0, 30.0]
    assert kinds(fleet)[0, USERS].buckets[0b10].setups == [5.0, 10.0]
    fleet.work(1, ready=0)
    assert bucket.setups == [20.0]
