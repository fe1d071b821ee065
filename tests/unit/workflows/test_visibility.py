"""What people see of groups and hosts in Temporal."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest

from mitosis.contracts.control import (
    EnvironmentView,
    GroupView,
    LeaseTurn,
    LeaseView,
    ManagerView,
)
from mitosis.contracts.lifecycle import (
    EnvironmentState,
    LeaseState,
    ManagerState,
    RunState,
    TaskGroupResult,
    TaskGroupState,
)
from mitosis.contracts.run_control import RunSituation
from workflows.visibility import (
    changes,
    group_attributes,
    group_details,
    group_names,
    manager_attributes,
    manager_details,
    manager_names,
    run_attributes,
    run_details,
    task_group_name,
)

GROUP, OTHER, HOST = UUID(int=1), UUID(int=2), UUID(int=3)
NOW = datetime(2026, 5, 4, 13, 59, tzinfo=UTC)


def test_search_attributes_are_upserted_only_when_they_change() -> None:
    before = group_attributes(GroupView(task_group_id=GROUP, group_name="team", tags=("gpu",)))
    after = group_attributes(
        GroupView(
            task_group_id=GROUP,
            group_name="team",
            state=TaskGroupState.COMPLETE,
            result=TaskGroupResult.SUCCESS,
        )
    )
    assert not changes(before, before)
    told = {update.key.name: update.value for update in changes(before, after)}
    assert told == {"MitosisState": "complete", "MitosisResult": "success", "MitosisTags": None}


def test_names_of_task_group_user_group_and_host() -> None:
    group = GroupView(task_group_id=GROUP, name="render", group_name="team")
    assert group_attributes(group)["MitosisTaskGroup"] == "render"
    assert group_attributes(group)["MitosisGroup"] == "team"
    assert group_names(group).memo == {"task_group": "render", "user_group": "team"}
    host = ManagerView(
        manager_id=HOST,
        name="h1",
        lease=lease(LeaseState.ACTIVE).model_copy(update={"task_group_name": "render"}),
    )
    assert manager_names(host).memo == {"manager": "h1"}
    assert task_group_name(host, GROUP) == "render"
    assert task_group_name(host, OTHER) == str(OTHER)


def test_details_of_a_group_name_it_its_state_and_what_is_next() -> None:
    view = GroupView(task_group_id=GROUP, name="c", group_name="team", total=5, unfinished=2)
    text = group_details(view, "2 unfinished tasks")
    assert "**team/c** is **open**" in text
    assert "3 of 5 done" in text
    assert text.endswith("* next: 2 unfinished tasks")
    chain = ("h1: lacks gpu", "the smallest change: tag gpu on h1")
    waits = view.model_copy(update={"chain": chain})
    assert group_details(waits, "no host", "signal stop").splitlines()[-4:] == [
        "* next: no host",
        "    * h1: lacks gpu",
        "    * the smallest change: tag gpu on h1",
        "* refused: signal stop",
    ]
    assert "no longer exists" in group_details(GroupView(task_group_id=GROUP, exists=False), "")


def lease(state: LeaseState) -> LeaseView:
    return LeaseView(epoch=7, state=state, task_group_id=GROUP, group_state=TaskGroupState.OPEN)


def environment(group: UUID, state: EnvironmentState) -> EnvironmentView:
    return EnvironmentView(task_group_id=group, state=state)


READY = environment(GROUP, EnvironmentState.READY)


TEARING = environment(OTHER, EnvironmentState.TEARING_DOWN)


HOSTS: dict[ManagerState, dict[str, Any]] = {
    ManagerState.PREPARING: {"lease": lease(LeaseState.OFFERED), "environments": (TEARING,)},
    ManagerState.EXECUTING: {"lease": lease(LeaseState.ACTIVE), "environments": (READY,)},
    ManagerState.CLEANUP: {"online": True, "environments": (READY, TEARING)},
    ManagerState.IDLE: {"online": True, "environments": (READY,)},
    ManagerState.OFFLINE: {"lease": lease(LeaseState.ENDED)},
}


@pytest.mark.parametrize("state", ManagerState)
def test_state_of_a_host_for_people(state: ManagerState) -> None:
    view = ManagerView(manager_id=HOST, name="host-1", state=state)
    assert manager_attributes(view)["MitosisState"] == state
    assert f"**host-1** is **{state}**" in manager_details(view, "nothing", NOW)


@pytest.mark.parametrize("state", HOSTS)
def test_a_view_recorded_without_a_state_is_replayed_as_it_was_shown(state: ManagerState) -> None:
    view = ManagerView(manager_id=HOST, name="host-1", **HOSTS[state])
    assert manager_attributes(view)["MitosisState"] == state
    assert f"**host-1** is **{state}**" in manager_details(view, "nothing", NOW)


def test_a_host_shows_until_when_its_lease_is_safe_and_what_comes_then() -> None:
    turn = LeaseTurn(what="idle", why="idle for long enough under g", in_seconds=90.0)
    held = lease(LeaseState.ACTIVE).model_copy(update={"turn": turn})
    view = ManagerView(manager_id=HOST, name="host-1", lease=held)
    lines = manager_details(view, "next", NOW).splitlines()
    assert "* at 2026-05-04 14:00:30 UTC: idle for long enough under g" in lines


def test_a_host_that_is_not_used_says_why_and_as_of_when() -> None:
    view = ManagerView(
        manager_id=HOST, name="host-1", chain=("a: lacks gpu", "the smallest change: b")
    )
    assert manager_details(view, "next", NOW).splitlines()[-4:] == [
        "* next: next",
        "* not used, as of 2026-05-04 13:59:00 UTC (now: `mitosis manager explain host-1`):",
        "    * a: lacks gpu",
        "    * the smallest change: b",
    ]
    assert view.standing == view.model_copy(update={"chain": ("b: lacks gpu",)}).standing


def test_a_run_is_described_by_its_steps_and_what_stops_it() -> None:
    run = RunSituation(
        run_id=uuid4(),
        state=RunState.RUNNING,
        job_name="pipeline",
        group_name="team",
        stopped_by="timeout",
        reason="its timeout has passed",
        steps_total=3,
        steps_ended=1,
        running_steps=("clean",),
    )
    assert run_attributes(run) == {
        "MitosisState": "running",
        "MitosisJob": "pipeline",
        "MitosisGroup": "team",
    }
    details = run_details(run, "signal cancel: too late")
    for line in (
        "A run of **team/pipeline** is **running**.",
        "* steps: 1 of 3 ended",
        "* running: clean",
        "* stopped by timeout: its timeout has passed",
        "* refused: signal cancel: too late",
    ):
        assert line in details
    ended = run.model_copy(update={"state": RunState.FAILED})
    assert run_attributes(ended)["MitosisResult"] == "failed"
    assert run_details(RunSituation(run_id=uuid4(), exists=False)) == "This run no longer exists."
