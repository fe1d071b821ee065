"""What the ends of host activities mean, what people are shown, and which error a failure was."""

from typing import Any
from uuid import UUID

import pytest
from temporalio.exceptions import (
    ActivityError,
    ApplicationError,
    CancelledError,
    RetryState,
    TimeoutError,  # noqa: A004 Temporal's own
    TimeoutType,
)

from mitosis.contracts.control import (
    EnvironmentView,
    GroupView,
    HookOutcome,
    HookVerdict,
    LeaseEnd,
    LeaseOutcome,
    LeaseView,
    ManagerView,
    Poke,
)
from mitosis.contracts.errors import InvalidTransition, NotFound, TemporalUnavailable
from mitosis.contracts.lifecycle import (
    EnvironmentState,
    LeaseState,
    ManagerState,
    TaskGroupResult,
    TaskGroupState,
)
from workflows.activity_results import Ended, last_activity_result
from workflows.client import TemporalAddress, from_failure, target
from workflows.decisions import HostActivity, LastActivityResult, RunningActivity
from workflows.relay import by_subject
from workflows.visibility import (
    changes,
    group_attributes,
    group_details,
    manager_attributes,
    manager_details,
)

GROUP, OTHER, HOST = UUID(int=1), UUID(int=2), UUID(int=3)
ATTACHED = RunningActivity(HostActivity.RUN, GROUP, 7)


def failed(cause: BaseException) -> ActivityError:
    error = ActivityError(
        "activity failed",
        scheduled_event_id=1,
        started_event_id=2,
        identity="host",
        activity_type="run_lease",
        activity_id="1",
        retry_state=RetryState.MAXIMUM_ATTEMPTS_REACHED,
    )
    error.__cause__ = cause
    return error


def timed_out(kind: TimeoutType) -> ActivityError:
    return failed(TimeoutError("late", type=kind, last_heartbeat_details=[]))


ENDS: dict[str, tuple[Ended, LeaseEnd | None, bool]] = {
    "ready": (HookOutcome(verdict=HookVerdict.READY), None, False),
    "cleaned": (HookOutcome(verdict=HookVerdict.CLEANED), None, False),
    "degraded": (HookOutcome(verdict=HookVerdict.DEGRADED), None, False),
    "setup failed": (HookOutcome(verdict=HookVerdict.FAILED), None, True),
    "refused": (HookOutcome(verdict=HookVerdict.LEASE_LOST), LeaseEnd.GONE, False),
    "drained": (LeaseOutcome(end=LeaseEnd.ENDING), None, False),
    "gone": (LeaseOutcome(end=LeaseEnd.GONE), LeaseEnd.GONE, False),
    "stopping": (LeaseOutcome(end=LeaseEnd.STOPPING), LeaseEnd.STOPPING, False),
    "detached": (LeaseOutcome(end=LeaseEnd.DETACHED), LeaseEnd.DETACHED, False),
    "never taken": (timed_out(TimeoutType.SCHEDULE_TO_START), LeaseEnd.UNREACHABLE, False),
    "no heartbeat": (timed_out(TimeoutType.HEARTBEAT), LeaseEnd.SILENT, False),
    "too long": (timed_out(TimeoutType.START_TO_CLOSE), LeaseEnd.SILENT, False),
    "agent stopped": (
        failed(ApplicationError("bye", type="WorkerShutdown")),
        LeaseEnd.STOPPING,
        False,
    ),
    "agent error": (failed(ApplicationError("broken")), LeaseEnd.FAILED, False),
    "cancelled": (failed(CancelledError("cancelled")), LeaseEnd.DETACHED, False),
    "cancelled before it began": (None, LeaseEnd.DETACHED, False),
}


@pytest.mark.parametrize(("ended", "trouble", "setup_failed"), ENDS.values(), ids=ENDS.keys())
def test_last_word(ended: Ended, trouble: LeaseEnd | None, setup_failed: bool) -> None:
    expected = LastActivityResult(HostActivity.RUN, 7, trouble, setup_failed)
    assert last_activity_result(ATTACHED, ended) == expected


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


def test_details_of_a_group_name_it_its_state_and_what_is_next() -> None:
    view = GroupView(task_group_id=GROUP, name="c", group_name="team", total=5, unfinished=2)
    text = group_details(view, "2 unfinished tasks")
    assert "**team/c** is **open**" in text
    assert "3 of 5 done" in text
    assert text.endswith("* next: 2 unfinished tasks")
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
    assert f"**host-1** is **{state}**" in manager_details(view, "nothing")


@pytest.mark.parametrize("state", HOSTS)
def test_a_view_recorded_without_a_state_is_replayed_as_it_was_shown(state: ManagerState) -> None:
    view = ManagerView(manager_id=HOST, name="host-1", **HOSTS[state])
    assert manager_attributes(view)["MitosisState"] == state
    assert f"**host-1** is **{state}**" in manager_details(view, "nothing")


def test_failures_become_the_errors_they_were() -> None:
    refused = InvalidTransition(
        subject="task group", state="open", event="reopen", allowed=["close"]
    )
    wire = ApplicationError(refused.message, refused.facts, type=refused.code)
    for cause in (wire, failed(wire)):
        error = from_failure(cause)
        assert isinstance(error, InvalidTransition)
        assert (error.message, error.facts) == (refused.message, refused.facts)
    assert isinstance(from_failure(ApplicationError("no", type="not_found")), NotFound)
    assert isinstance(
        from_failure(ApplicationError("?", type="SomethingElse")), TemporalUnavailable
    )
    assert isinstance(from_failure(None), TemporalUnavailable)


def test_rows_for_one_subject_are_one_poke() -> None:
    rows = [
        Poke(id=1, kind="task_group", subject=GROUP),
        Poke(id=2, kind="manager", subject=GROUP),
        Poke(id=3, kind="task_group", subject=GROUP),
        Poke(id=4, kind="scheduler"),
    ]
    assert by_subject(rows) == {
        ("task_group", GROUP): [1, 3],
        ("manager", GROUP): [2],
        ("scheduler", None): [4],
    }


def test_every_target_has_its_own_id_and_the_scheduler_needs_none() -> None:
    assert target("scheduler").id == "scheduler"
    assert target("task_group", GROUP).id == f"task-group/{GROUP}"
    assert target("manager", HOST).id == f"manager/{HOST}"
    with pytest.raises(ValueError, match="has an id"):
        target("manager")


def test_api_key_is_never_shown() -> None:
    assert "secret" not in repr(TemporalAddress("somewhere:7233", api_key="secret"))
