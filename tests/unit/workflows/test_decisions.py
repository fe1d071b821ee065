"""Every choice a workflow can make, as a table: the view, and the step."""

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from mitosis.contracts.control import (
    EnvironmentView,
    GroupView,
    LeaseEnd,
    LeaseView,
    ManagerView,
    ReleaseReason,
)
from mitosis.contracts.lifecycle import (
    EnvironmentState,
    LeaseState,
    TaskGroupResult,
    TaskGroupState,
)
from workflows.decisions import (
    BACKSTOP_SECONDS,
    LOST_CHECK_SECONDS,
    Abandon,
    CloseIfInactive,
    Discard,
    EndAfterFailedSetups,
    Finalize,
    Finish,
    GroupStep,
    HostActivity,
    KnownActivities,
    LastActivityResult,
    ManagerStep,
    Release,
    RequestLeaseCheck,
    RunningActivity,
    Settle,
    StartHost,
    Wait,
    group_step,
    manager_step,
)

GROUP = UUID(int=1)
OTHER = UUID(int=2)
HOST = UUID(int=3)
PREPARE, RUN, CLEAN = HostActivity.PREPARE, HostActivity.RUN, HostActivity.CLEAN
READY, PREPARING, OWED = (
    EnvironmentState.READY,
    EnvironmentState.PREPARING,
    EnvironmentState.OWED,
)
ANY_WAIT = Wait("")


def group(**facts: Any) -> GroupView:
    return GroupView(task_group_id=GROUP, **facts)


def same(step: object, expected: object) -> bool:
    """Compare steps; of a Wait only how long it lasts matters here."""
    if isinstance(step, Wait) and isinstance(expected, Wait):
        return (step.until_look, step.then) == (expected.until_look, expected.then)
    return step == expected


GROUP_STEPS: dict[str, tuple[GroupView, GroupStep]] = {
    "unknown": (group(exists=False), Finish()),
    "settled": (
        group(
            state=TaskGroupState.COMPLETE,
            settled=True,
            result=TaskGroupResult.SUCCESS,
            unfinished=1,
        ),
        Finish(),
    ),
    "open, no timer": (group(), Wait("")),
    "open, drained": (group(total=3), Wait("")),
    "auto-close ahead": (group(auto_close_in_seconds=60), Wait("", 60, CloseIfInactive())),
    "deadline is sooner": (
        group(auto_close_in_seconds=60, close_deadline_in_seconds=5),
        Wait("", 5, CloseIfInactive()),
    ),
    "auto-close due": (group(auto_close_in_seconds=0), CloseIfInactive()),
    "deadline past": (
        group(auto_close_in_seconds=9, close_deadline_in_seconds=-1),
        CloseIfInactive(),
    ),
    "closed, working": (
        group(state=TaskGroupState.CLOSED, unfinished=1, auto_close_in_seconds=-1),
        Wait(""),
    ),
    "closed, working until the deadline": (
        group(state=TaskGroupState.CLOSED, unfinished=1, close_deadline_in_seconds=5),
        Wait("", 5, CloseIfInactive()),
    ),
    "closed, deadline past": (
        group(state=TaskGroupState.CLOSED, unfinished=1, close_deadline_in_seconds=0),
        CloseIfInactive(),
    ),
    "closed, setup failed everywhere": (
        group(state=TaskGroupState.CLOSED, unfinished=1, setup_failed=True),
        EndAfterFailedSetups(),
    ),
    "open until its deadline, setup failed everywhere": (
        group(unfinished=1, setup_failed=True, close_deadline_in_seconds=5),
        EndAfterFailedSetups(),
    ),
    "closed, drained": (group(state=TaskGroupState.CLOSED), Finalize()),
    "forced complete": (
        group(state=TaskGroupState.CLOSED, discarding=True, discardable=True, unfinished=9),
        Discard(),
    ),
    "cancelled, unclaimed left": (
        group(state=TaskGroupState.CANCELLED, discarding=True, discardable=True, unfinished=9),
        Discard(),
    ),
    "cancelled, running": (group(state=TaskGroupState.CANCELLED, unfinished=1), Wait("")),
    "complete, leased": (group(state=TaskGroupState.COMPLETE, live_leases=1), Wait("")),
    "complete, dirty hosts": (group(state=TaskGroupState.COMPLETE, busy_environments=1), Wait("")),
    "complete, owed": (
        group(
            state=TaskGroupState.COMPLETE, busy_environments=1, cleanup_given_up_in_seconds=300.0
        ),
        Wait("", 300.0),
    ),
    "complete, owed and leased": (
        group(
            state=TaskGroupState.COMPLETE,
            live_leases=1,
            busy_environments=1,
            cleanup_given_up_in_seconds=300.0,
        ),
        Wait(""),
    ),
    "complete": (group(state=TaskGroupState.COMPLETE), Settle()),
    "cancelled": (group(state=TaskGroupState.CANCELLED), Settle()),
}


@pytest.mark.parametrize(("view", "expected"), GROUP_STEPS.values(), ids=GROUP_STEPS.keys())
def test_group_step(view: GroupView, expected: GroupStep) -> None:
    step = group_step(view)
    assert same(step, expected), step


def test_a_group_that_waits_says_why() -> None:
    for view, step in GROUP_STEPS.values():
        if isinstance(step, Wait):
            decided = group_step(view)
            assert isinstance(decided, Wait)
            assert decided.why
    told = group_step(group(state=TaskGroupState.CLOSED, unfinished=1, waiting_for="no host"))
    assert isinstance(told, Wait)
    assert told.why == "no host"


# --- managers -------------------------------------------------------------------------------------


def lease(state: LeaseState, **facts: Any) -> LeaseView:
    told = {"group_state": TaskGroupState.OPEN, "alive_in_seconds": 80.0, **facts}
    if state is LeaseState.OFFERED:
        told["alive_in_seconds"] = None
    return LeaseView(**{"epoch": 7, "state": state, "task_group_id": GROUP, **told})


def environment(
    state: EnvironmentState, of: UUID = GROUP, cleanable: bool = False
) -> EnvironmentView:
    return EnvironmentView(task_group_id=of, state=state, cleanable=cleanable)


def host(
    held: LeaseView | None = None, *environments: EnvironmentView, online: bool = True, **facts: Any
) -> ManagerView:
    return ManagerView(
        manager_id=HOST, lease=held, environments=environments, online=online, **facts
    )


def word(
    activity: HostActivity, trouble: LeaseEnd | None = None, **facts: Any
) -> LastActivityResult:
    return LastActivityResult(activity, facts.pop("epoch", 7), trouble, **facts)


NONE = KnownActivities()
RUNNING = RunningActivity(RUN, GROUP, 7)
WATCHING = KnownActivities(lease=RUNNING)
CLEANING = KnownActivities(cleaning=RunningActivity(CLEAN, OTHER, None))
OFFERED = lease(LeaseState.OFFERED)
ACTIVE = lease(LeaseState.ACTIVE)
ENDING = lease(LeaseState.ENDING)
OVER = {"group_state": TaskGroupState.COMPLETE}


def after(last: LastActivityResult) -> KnownActivities:
    return KnownActivities(lease_result=last)


ATTACHED_TO_THE_END = KnownActivities(lease=replace(RUNNING, to_the_end=True))


def check_requested(seconds: float) -> KnownActivities:
    return KnownActivities(lease=replace(RUNNING, check_requested_seconds=seconds))


MANAGER_STEPS: dict[str, tuple[ManagerView, KnownActivities, ManagerStep]] = {
    "deleted": (host(exists=False), NONE, Finish()),
    "idle": (host(), NONE, Wait("")),
    "idle, offline": (host(online=False), NONE, Finish()),
    "idle, silent": (host(online=False, lost_in_seconds=70), NONE, Wait("", 70)),
    "idle, silent too long": (
        host(online=False, lost_in_seconds=0),
        NONE,
        Release(None, ReleaseReason.LOST),
    ),
    "dormant environment": (host(None, environment(READY)), NONE, Wait("")),
    # offers
    "offer": (host(OFFERED), NONE, StartHost(PREPARE, GROUP, 7)),
    "offer to a group that ended": (
        host(lease(LeaseState.OFFERED, **OVER)),
        NONE,
        Release(7, ReleaseReason.GROUP_ENDED),
    ),
    "offer not taken": (
        host(OFFERED),
        after(word(PREPARE, LeaseEnd.UNREACHABLE)),
        Release(7, ReleaseReason.UNREACHABLE),
    ),
    "offer, host died": (
        host(OFFERED),
        after(word(PREPARE, LeaseEnd.SILENT)),
        Release(7, ReleaseReason.UNREACHABLE),
    ),
    "offer, older trouble": (
        host(OFFERED),
        after(word(PREPARE, LeaseEnd.UNREACHABLE, epoch=6)),
        StartHost(PREPARE, GROUP, 7),
    ),
    "offer refused a moment ago": (
        host(OFFERED),
        after(word(PREPARE, LeaseEnd.GONE, hold_seconds=3)),
        Wait("", 3),
    ),
    "offer refused a while ago": (
        host(OFFERED),
        after(word(PREPARE, LeaseEnd.GONE)),
        StartHost(PREPARE, GROUP, 7),
    ),
    # taken
    "taken, not ready": (
        host(ACTIVE, environment(PREPARING)),
        NONE,
        StartHost(PREPARE, GROUP, 7),
    ),
    "taken, other environment ready": (
        host(ACTIVE, environment(READY, OTHER)),
        NONE,
        StartHost(PREPARE, GROUP, 7),
    ),
    "taken, ready": (host(ACTIVE, environment(READY)), NONE, StartHost(RUN, GROUP, 7)),
    "prepared a moment ago": (
        host(ACTIVE, environment(READY)),
        after(word(PREPARE, hold_seconds=1)),
        StartHost(RUN, GROUP, 7),
    ),
    "setup failed": (
        host(ACTIVE),
        after(word(PREPARE, setup_failed=True)),
        Release(7, ReleaseReason.SETUP_FAILED),
    ),
    "setup failed while ending": (
        host(ENDING),
        after(word(PREPARE, setup_failed=True)),
        Release(7, ReleaseReason.SETUP_FAILED),
    ),
    "setup without verdict": (
        host(ACTIVE),
        after(word(PREPARE, LeaseEnd.FAILED)),
        Release(7, ReleaseReason.SETUP_LOST),
    ),
    "silent activity, host in contact": (
        host(ACTIVE, environment(READY)),
        after(word(RUN, LeaseEnd.SILENT)),
        StartHost(RUN, GROUP, 7),
    ),
    "silent activity, held": (
        host(ACTIVE, environment(READY)),
        after(word(RUN, LeaseEnd.SILENT, hold_seconds=2)),
        Wait("", 2),
    ),
    "silent host": (
        host(ACTIVE, environment(READY), online=False),
        after(word(RUN, LeaseEnd.SILENT)),
        Wait("", LOST_CHECK_SECONDS),
    ),
    "silent host, nearly lost": (
        host(lease(LeaseState.ACTIVE, alive_in_seconds=4.0), online=False),
        after(word(RUN, LeaseEnd.SILENT)),
        Wait("", 4),
    ),
    "lost host": (
        host(lease(LeaseState.ACTIVE, alive_in_seconds=0.0), online=False),
        after(word(RUN, LeaseEnd.SILENT)),
        Release(7, ReleaseReason.LOST),
    ),
    "lost while nothing was tried": (
        host(lease(LeaseState.ENDING, alive_in_seconds=-3.0), online=False),
        NONE,
        Release(7, ReleaseReason.LOST),
    ),
    "agent stops in order": (
        host(ACTIVE, environment(READY)),
        after(word(RUN, LeaseEnd.STOPPING)),
        Wait("", LOST_CHECK_SECONDS),
    ),
    # watched
    "running": (host(ACTIVE, environment(READY)), WATCHING, Wait("")),
    "running, told to end": (host(ENDING), WATCHING, RequestLeaseCheck()),
    "attached when it was ending already": (host(ENDING), ATTACHED_TO_THE_END, Wait("")),
    "running, check requested, may take its time": (host(ENDING), check_requested(9_999), Wait("")),
    "running, lease gone": (host(), WATCHING, RequestLeaseCheck()),
    "running, newer epoch": (
        host(lease(LeaseState.OFFERED, epoch=8)),
        WATCHING,
        RequestLeaseCheck(),
    ),
    "running, lease gone, check requested": (
        host(),
        check_requested(10),
        Wait("", BACKSTOP_SECONDS - 10),
    ),
    "running, lease gone, ignores it": (host(), check_requested(BACKSTOP_SECONDS), Abandon()),
    "running, ended lease shown": (host(lease(LeaseState.ENDED)), check_requested(31), Abandon()),
    "running, but the API hears nothing": (
        host(lease(LeaseState.ACTIVE, alive_in_seconds=-1.0), online=False),
        WATCHING,
        Release(7, ReleaseReason.LOST),
    ),
    # endings
    "ending, nothing attached": (host(ENDING), NONE, StartHost(RUN, GROUP, 7)),
    "ending, drained": (
        host(lease(LeaseState.ENDING, **OVER)),
        after(word(RUN)),
        Release(7, ReleaseReason.GROUP_ENDED),
    ),
    "moved, drained": (host(ENDING), after(word(RUN)), Release(7, ReleaseReason.MOVED)),
    "ending, setup was under way": (host(ENDING), after(word(PREPARE)), StartHost(RUN, GROUP, 7)),
    "ending, let go": (
        host(ENDING),
        after(word(RUN, LeaseEnd.DETACHED)),
        StartHost(RUN, GROUP, 7),
    ),
    "ending, silent": (
        host(ENDING, online=False),
        after(word(RUN, LeaseEnd.SILENT)),
        Wait("", LOST_CHECK_SECONDS),
    ),
    # environments
    "to clean": (
        host(None, environment(READY, cleanable=True)),
        NONE,
        StartHost(CLEAN, GROUP, None),
    ),
    "owed belongs to hello": (host(None, environment(OWED, cleanable=True)), NONE, Wait("")),
    "to clean, host silent": (
        host(None, environment(READY, cleanable=True), online=False, lost_in_seconds=20),
        NONE,
        Wait("", 20),
    ),
    "cleaning": (host(None, environment(READY, OTHER, cleanable=True)), CLEANING, Wait("")),
    "cleaning failed a moment ago": (
        host(None, environment(READY, cleanable=True)),
        KnownActivities(cleaning_result=word(CLEAN, LeaseEnd.FAILED, epoch=None, hold_seconds=4)),
        Wait("", 4),
    ),
    "room before an offer": (
        host(OFFERED, environment(READY, OTHER, cleanable=True)),
        NONE,
        StartHost(CLEAN, OTHER, None),
    ),
    "an offer waits for the teardown": (host(OFFERED), CLEANING, Wait("")),
    "an offer does not wait for a teardown that fails": (
        host(OFFERED, environment(READY, OTHER, cleanable=True)),
        KnownActivities(cleaning_result=word(CLEAN, LeaseEnd.FAILED, epoch=None, hold_seconds=4)),
        StartHost(PREPARE, GROUP, 7),
    ),
    "cleaning beside a running lease": (
        host(ACTIVE, environment(READY), environment(READY, OTHER, cleanable=True)),
        WATCHING,
        StartHost(CLEAN, OTHER, None),
    ),
    "running beside a teardown": (
        host(ACTIVE, environment(READY)),
        CLEANING,
        StartHost(RUN, GROUP, 7),
    ),
}


@pytest.mark.spec("S000-39")
@pytest.mark.parametrize(
    ("view", "known", "expected"), MANAGER_STEPS.values(), ids=MANAGER_STEPS.keys()
)
def test_manager_step(view: ManagerView, known: KnownActivities, expected: ManagerStep) -> None:
    step = manager_step(view, known)
    assert same(step, expected), step


@pytest.mark.parametrize("state", LeaseState)
@pytest.mark.parametrize("trouble", [None, *LeaseEnd])
@pytest.mark.parametrize("activity", [PREPARE, RUN])
def test_no_trouble_releases_a_taken_lease_before_its_clock(
    state: LeaseState, trouble: LeaseEnd | None, activity: HostActivity
) -> None:
    """P4: only the liveness clock loses a host; what Temporal says is only a reason to look."""
    for online in (True, False):
        step = manager_step(host(lease(state), online=online), after(word(activity, trouble)))
        if isinstance(step, Release):
            assert step.reason is not ReleaseReason.LOST
            taken = state in (LeaseState.ACTIVE, LeaseState.ENDING)
            if taken and trouble is not None:
                assert (activity, trouble) == (PREPARE, LeaseEnd.FAILED)
