"""The tree of a run: each step once, below the last step before it, with what is known about it."""

from datetime import timedelta

import pytest

from mitosis.cli.job.run_tree import Rates, bar, headline, step_text, tree_lines
from mitosis.contracts.runs import RunView, StepInfo
from tests.support.run_views import NOON, run_view, step

LATER = NOON + timedelta(seconds=12)


def pipeline(measured: int = 100) -> RunView:
    return run_view(
        step(
            "prepare",
            "succeeded",
            created=1,
            total=1,
            succeeded=1,
            started_at=NOON,
            ended_at=NOON + timedelta(seconds=2.1),
        ),
        step(
            "measure",
            "running",
            after=["prepare"],
            layer=1,
            is_array=True,
            total=200,
            created=200,
            open=97,
            succeeded=measured,
            failed=3,
            started_at=NOON + timedelta(seconds=2),
        ),
        step("merge", after=["measure"], layer=2),
        step("alarm", "skipped", after={"prepare": "failure"}, layer=1, reason="prepare succeeded"),
        step("clean", after={"merge": "always", "measure": "always"}, layer=3),
        tasks_failed=3,
    )


def test_the_tree_of_a_running_run() -> None:
    rates = Rates()
    rates.add(pipeline(60), LATER - timedelta(seconds=4))
    rates.add(pipeline(), LATER)
    assert headline(pipeline(), LATER) == (
        "pipeline version 3  running 12s  2 of 5 steps  3 tasks failed"
    )
    assert tree_lines(pipeline(), rates, LATER) == [
        "✓ prepare         succeeded 2.1s",
        "├─ ▶ measure      running 10s  █████████✗░░░░░░░░░░  100 of 200, 3 failed  10/s  done in 10s",
        "│  └─ · merge     waits for measure",
        "│     └─ · clean  waits for merge: always, measure: always",
        "└─ - alarm        skipped: prepare succeeded",
    ]


@pytest.mark.parametrize(
    ("one", "text"),
    [
        (step("a", "waiting", after=["b", "gone"]), "waiting"),
        (step("a", "waiting", after={"c": "always"}), "waits for c: always"),
        (step("a", "running", started_at=NOON), "running 12s"),
        (
            step("a", "running", started_at=NOON, stopped_by="timeout"),
            "running 12s  stopping (timeout)",
        ),
        (step("a", "failed", reason="exit\nstatus 3"), "failed: exit⏎status 3"),
        (
            step(
                "a", "failed", is_array=True, total=9, created=9, succeeded=4, failed=2, cancelled=3
            ),
            "failed  4 of 9, 2 failed, 3 cancelled",
        ),
        (
            step("a", "succeeded", taken_from="00000000-0000-0000-0000-000000000001"),
            "succeeded  taken over",
        ),
        (step("a", "cancelled", reason="by ann"), "cancelled: by ann"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_said_of_a_step(one: StepInfo, text: str) -> None:
    steps = {"b": step("b", "succeeded"), "c": step("c", "running")}
    assert step_text(one, steps, Rates(), LATER) == text


def test_the_first_line_says_why_a_run_is_being_stopped() -> None:
    stopping = run_view(stopped_by="cancel", reason="too hot", name="nightly")
    assert headline(stopping, NOON).endswith("stopping (cancel): too hot")
    assert headline(stopping, NOON).startswith("pipeline version 3 (nightly)  running")
    ended = run_view(state="cancelled", stopped_by="cancel", reason="too hot", ended_at=LATER)
    assert headline(ended, NOON) == "pipeline version 3  cancelled 12s  0 of 0 steps  too hot"


def array(succeeded: int, failed: int = 0) -> StepInfo:
    return step("a", "running", is_array=True, total=1000, succeeded=succeeded, failed=failed)


def test_a_single_failed_task_is_seen_in_the_bar() -> None:
    assert bar(array(999, 1), 10) == "█████████✗"
    assert bar(array(1, 1), 10) == "✗░░░░░░░░░"
    assert bar(array(1000), 10) == "█" * 10
    assert bar(array(0, 1000), 10) == "✗" * 10


def test_a_rate_is_that_of_the_last_seconds() -> None:
    """A fast beginning, then a slow time: what was fast is forgotten after 30 seconds."""
    rates = Rates()
    ended = [0, 1000, *range(1001, 1101)]
    for second, count in enumerate(ended):
        rates.add(run_view(array(count)), NOON + timedelta(seconds=second))
    last = len(ended) - 1
    assert rates.of(array(ended[-1]), NOON + timedelta(seconds=last)) == pytest.approx(1.0)
    assert rates.of(array(ended[-1]), NOON + timedelta(seconds=last + 32)) == pytest.approx(
        0.5, 0.05
    )
    rates.add(run_view(step("a", "succeeded", is_array=True)), NOON + timedelta(seconds=200))
    assert rates.of(array(ended[-1]), NOON + timedelta(seconds=201)) is None


def test_no_rate_from_less_than_a_second() -> None:
    rates = Rates()
    rates.add(run_view(array(0)), NOON)
    assert rates.of(array(500), NOON + timedelta(seconds=0.5)) is None


def test_where_there_is_little_room_running_and_failed_steps_are_shown_first() -> None:
    done = [step(f"d{at}", "succeeded") for at in range(30)]
    run = run_view(*done, step("bad", "failed"), step("now", "running"), step("next"))
    lines = tree_lines(run, Rates(), NOON, room=4)
    assert [line.split()[1] for line in lines[:3]] == ["bad", "now", "next"]
    assert lines[3] == "… 30 more steps: 30 succeeded"
    assert len(tree_lines(run, Rates(), NOON, room=33)) == 33
    assert tree_lines(run, Rates(), NOON, room=1) == [
        "… 33 more steps: 1 waiting, 1 running, 30 succeeded, 1 failed"
    ]


def test_a_chain_of_a_thousand_steps_needs_no_deep_stack() -> None:
    steps = [step("s0"), *(step(f"s{at}", after=[f"s{at - 1}"], layer=at) for at in range(1, 1000))]
    assert len(tree_lines(run_view(*steps), Rates(), NOON)) == 1000
