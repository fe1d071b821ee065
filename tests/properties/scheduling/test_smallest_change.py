"""The smallest change of an explanation: it leads to a lease, and nothing smaller does."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from mitosis.scheduling.actions import gains_of
from mitosis.scheduling.changes import Change, ChangeKind, apply_change
from mitosis.scheduling.decide import decided_round
from mitosis.scheduling.explain import explain_group
from mitosis.scheduling.policy import Policy
from mitosis.scheduling.snapshot import Snapshot
from tests.support.examples import examples
from tests.support.random_fleets import contested_fleets, exclusive_fleets, fleets
from tests.support.scheduling import NOW, Fleet

ONE_STEP = {
    ChangeKind.PRIORITY: 1,
    ChangeKind.MAX_MANAGERS: 1,
    ChangeKind.SUBMIT: 1,
    ChangeKind.WAIT: 0.01,
}
"""How much less of a change is the next smaller one of its kind."""


def gets_a_host(snapshot: Snapshot, group: int, changes: Sequence[Change]) -> bool:
    """Whether a decision after the changes gives the task group a host."""
    changed, now = snapshot.copy(), NOW
    for change in changes:
        now = apply_change(changed, change, now)
    return bool(gains_of(decided_round(changed, now).actions, group))


def smaller(changes: Sequence[Change]) -> Iterator[list[Change]]:
    """The same changes without one of them, or with one of them a step smaller."""
    for place, change in enumerate(changes):
        before, after = changes[:place], changes[place + 1 :]
        yield [*before, *after]
        if change.kind in ONE_STEP:
            value = change.value - ONE_STEP[change.kind]
            yield [*before, replace(change, value=value), *after]


HOST_CHANGES = [
    kind
    for kind in ChangeKind
    if kind not in (*ONE_STEP, ChangeKind.PLAN)  # how much a plan shrinks is not compared
]


def single_changes(snapshot: Snapshot, number: int) -> Iterator[Change]:
    """Every change of one fact that could help, except how much work there is."""
    group = snapshot.groups[number]

    def change(kind: ChangeKind, value: float = 0.0, host: int | None = None) -> Change:
        wait = value - NOW if kind is ChangeKind.WAIT else 0.0
        return Change(kind=kind, line="", group=number, host=host, value=value, wait_seconds=wait)

    priorities = {one.fact.priority for one in snapshot.groups.values()}
    for priority in {*priorities, *(one + 1 for one in priorities)}:
        if priority > group.fact.priority:
            yield change(ChangeKind.PRIORITY, priority)
    most = group.fact.max_managers
    if most is not None:
        yield from (change(ChangeKind.MAX_MANAGERS, most + more) for more in range(1, 4))
    for host in snapshot.hosts:
        yield from (change(kind, host=host) for kind in HOST_CHANGES)
    if group.work.delayed_until is not None and group.work.delayed_until > NOW:
        yield change(ChangeKind.WAIT, group.work.delayed_until)
    for times in (snapshot.times.affinity, snapshot.times.retries):
        yield from (change(ChangeKind.WAIT, at) for at, _ in times.later(NOW))


ANY_FLEET = st.one_of(fleets(), contested_fleets(), exclusive_fleets(st.just(Policy())))


@settings(max_examples=examples(20))
@given(ANY_FLEET, st.integers(1, 4))
def test_no_smaller_change_gives_the_task_group_a_host(fleet: Fleet, number: int) -> None:
    snapshot = fleet.snapshot
    assume(number in snapshot.groups and snapshot.groups[number].fact.goes_on)
    found = explain_group(snapshot, NOW, number)
    if found.gets:
        assert found.smallest is None
        return
    if found.smallest is not None:
        changes = found.smallest.changes
        assert gets_a_host(snapshot, number, changes), found.smallest.line
        for less in smaller(changes):
            assert not gets_a_host(snapshot, number, less), (
                found.smallest.line,
                [(one.kind, one.line, one.value) for one in less],
            )
    for change in single_changes(snapshot, number):
        is_wait = change.kind is ChangeKind.WAIT
        if found.smallest is not None and (is_wait or change.price >= found.smallest.price[0]):
            continue
        assert not gets_a_host(snapshot, number, [change]), (
            found.smallest and found.smallest.line,
            change.kind,
            change.host,
            change.value,
        )
