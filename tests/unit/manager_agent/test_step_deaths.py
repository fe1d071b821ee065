"""Records of the steps in which an agent has died; each ``StepDeaths`` stands for one process of it."""

from pathlib import Path
from uuid import UUID

import pytest

from manager_agent.step_deaths import DEATHS, STOPS, Step, StepDeaths

GROUP = UUID(int=1)
STEP = Step("setup hook", GROUP, "make")


def die(folder: Path, step: Step = STEP, *, times: int = 1, stopped: bool = False) -> None:
    """Begin the step and end in it, then count that as the next process does."""
    for _ in range(times):
        process = StepDeaths(folder)
        with process.during(step):
            process.leave()
        StepDeaths(folder).count(stopped_in_order=stopped)


def refusal(folder: Path, step: Step = STEP) -> str | None:
    return StepDeaths(folder).refusal(step)


def test_a_step_is_refused_after_some_deaths_in_it(tmp_path: Path) -> None:
    die(tmp_path, times=DEATHS - 1)
    assert refusal(tmp_path) is None
    die(tmp_path)
    assert refusal(tmp_path) == (
        f"the setup hook is given up: the agent of this host died {DEATHS} times while it ran"
    )


def test_stops_in_order_are_counted_apart_and_bounded_too(tmp_path: Path) -> None:
    """A step may send its agent SIGTERM; an innocent one survives many restarts."""
    die(tmp_path, times=STOPS - 1, stopped=True)
    die(tmp_path, times=DEATHS - 1)
    assert refusal(tmp_path) is None
    die(tmp_path, stopped=True)
    assert f"was stopped {STOPS} times" in str(refusal(tmp_path))


@pytest.mark.parametrize("error", [None, RuntimeError])
def test_a_step_that_ends_under_a_living_agent_begins_again_from_zero(
    tmp_path: Path, error: type[Exception] | None
) -> None:
    die(tmp_path, times=DEATHS - 1)
    try:
        with StepDeaths(tmp_path).during(STEP):
            if error is not None:
                raise error
    except RuntimeError:
        pass
    assert list(tmp_path.iterdir()) == []
    die(tmp_path, times=DEATHS - 1)
    assert refusal(tmp_path) is None


def test_a_death_outside_any_step_counts_for_none_and_forgives_none(tmp_path: Path) -> None:
    die(tmp_path, times=DEATHS - 1)
    for _ in range(3):
        StepDeaths(tmp_path).count(stopped_in_order=False)
    assert refusal(tmp_path) is None
    die(tmp_path)
    StepDeaths(tmp_path).count(stopped_in_order=False)
    assert refusal(tmp_path) is not None


def test_another_death_does_not_let_a_refused_step_run_again(tmp_path: Path) -> None:
    """Else two groups with deadly hooks would take turns for ever."""
    other = Step("setup hook", UUID(int=2), "make")
    die(tmp_path, times=DEATHS)
    die(tmp_path, other, times=DEATHS)
    die(tmp_path, other, stopped=True)
    assert refusal(tmp_path) is not None
    assert refusal(tmp_path, other) is not None


def test_a_restart_by_people_lets_it_run_again(tmp_path: Path) -> None:
    die(tmp_path, times=DEATHS)
    StepDeaths(tmp_path).count(stopped_in_order=True)
    assert refusal(tmp_path) is None


def test_a_changed_definition_is_another_step(tmp_path: Path) -> None:
    die(tmp_path, times=DEATHS)
    assert refusal(tmp_path, STEP._replace(definition="make all")) is None
    assert refusal(tmp_path, STEP._replace(kind="teardown hook")) is None


def test_a_group_is_forgotten_with_all_its_steps(tmp_path: Path) -> None:
    other = Step("setup hook", UUID(int=2), "make")
    for step in (STEP, STEP._replace(kind="probe"), other):
        die(tmp_path, step, times=DEATHS)
    StepDeaths(tmp_path).forget(GROUP)
    assert refusal(tmp_path) is None
    assert refusal(tmp_path, STEP._replace(kind="probe")) is None
    assert refusal(tmp_path, other) is not None


def test_a_record_that_cannot_be_read_or_written_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / f"{GROUP}.setup-hook.json").write_text("{")
    StepDeaths(tmp_path).count(stopped_in_order=False)
    assert refusal(tmp_path) is None
    file = tmp_path / "file"
    file.touch()
    with StepDeaths(file / "folder").during(STEP):
        pass
