"""When a task group is poked so that Temporal's tools show why it waits."""

from uuid import UUID

from workflows.situation_signals import AT_ONCE, PAUSES, REMEMBERED, SituationSignals

GROUP = UUID(int=1)
EVERY = 5.0


def signals(*situations: int, every: float = EVERY) -> list[float]:
    """The times of the pokes if looks find these situations one after the other."""
    signals, times = SituationSignals(), list[float]()
    for number, situation in enumerate(situations):
        now = number * every
        for group in signals.due({GROUP: situation}, now):
            signals.signalled(group, now)
            times.append(now)
    return times


def test_what_two_looks_have_found_is_signalled_once() -> None:
    assert signals(7) == []
    assert signals(7, 8, 7, 8) == [], "it passes by itself"
    assert signals(*[7] * 1000) == [EVERY]


def test_another_situation_is_signalled_after_a_pause() -> None:
    assert signals(7, 7, 8, 8) == [EVERY, 3 * EVERY]
    assert signals(7, 7, 8, 8, every=2.0) == [2.0]
    assert signals(7, 7, *[8] * 10, every=2.0) == [2.0, 2.0 + PAUSES.first_seconds]


def test_a_situation_that_changes_all_the_time_costs_few_signals() -> None:
    """Each of them costs the history of the workflow 10 events."""
    changing = [number // 2 for number in range(720)]
    assert len(signals(*changing)) < 200 / 10
    calm = [0] * 400
    assert signals(*changing, *calm, 1, 1, 2, 2, 3, 3)[-2:] == [1121 * EVERY, 1123 * EVERY]


def test_a_look_signals_so_many_and_the_next_one_the_others() -> None:
    signals, groups = SituationSignals(), [UUID(int=number) for number in range(AT_ONCE + 3)]
    found = dict.fromkeys(groups, 1)
    assert signals.due(found, 0.0) == []
    first = signals.due(found, 5.0)
    assert len(first) == AT_ONCE
    for group in first:
        signals.signalled(group, 5.0)
    assert sorted(first + signals.due(found, 10.0)) == groups


def test_it_remembers_a_bounded_number() -> None:
    signals = SituationSignals()
    for number in range(REMEMBERED + 100):
        signals.due({UUID(int=number): 1}, 0.0)
    assert len(signals._groups) == REMEMBERED
    assert signals.due({UUID(int=REMEMBERED + 99): 1}, 5.0) == [UUID(int=REMEMBERED + 99)]
    assert signals.due({UUID(int=0): 1}, 5.0) == [], "forgotten: looked at again first"
