"""Why nothing happens: the first rule that holds."""

from typing import Any

import pytest

from mitosis.contracts.allocation import CpuBinding, CpuBindingStrategy
from mitosis.contracts.host_failures import HostFailureKind
from mitosis.scheduling.facts import Freed
from mitosis.store.leases.no_host_reasons import Reason
from mitosis.store.leases.reasons import (
    WaitingTask,
    host_reason,
    task_reason,
    waiting_for,
    why,
)
from mitosis.store.leases.waiting import Waiting
from tests.support.host_facts import (
    GROUP,
    NOW,
    OTHER_GROUP,
    failure,
    lease,
    setup_run,
    waiting,
    waiting_host,
)

CROWDED: dict[str, Any] = {
    "workers": 3,
    "binding": CpuBinding(strategy=CpuBindingStrategy.EXCLUSIVE),
}
SILENT: dict[str, Any] = {"last_contact_at": NOW - 42.0}
NEVER: dict[str, Any] = {"last_contact_at": None, "offline": True, "cores": None}
FAILED: dict[str, Any] = {"failures": (failure(),)}
UNREACHABLE: dict[str, Any] = {
    "failures": (failure(HostFailureKind.UNREACHABLE, failures=2, tried_in_seconds=20.0),)
}
SUSPECTED: dict[str, Any] = {"failures": (failure(HostFailureKind.SUSPECTED),)}
OTHERS_HOLD = "another task group: render (priority 0); this one has priority 0"
NOT_READY = "no task is ready: 0 of 1 unfinished task, at least 1 is needed"
REFRESH = "mitosis group managers campaign --refresh"
RETRY = "mitosis manager retry-setup a --task-group campaign"
BUSY: dict[str, Any] = lease(group_number=OTHER_GROUP, name="render")
LEAVING: dict[str, Any] = {
    **lease("ending", OTHER_GROUP, name="render"),
    "lease_for": GROUP,
    "contested_at": NOW - 60.0,
}
UNCLEAN: dict[str, Any] = {"unclean": frozenset({OTHER_GROUP})}
NO_TAGS: dict[str, Any] = {"tags": frozenset()}
GPU: dict[str, Any] = {"tags": frozenset({"gpu"})}


def held(name: str = "a", state: str = "active", **facts: Any) -> Any:
    return waiting_host(name, **lease(state), **facts)


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (waiting(settled=True, state="complete"), None),
        (waiting(state="cancelled", unfinished=0), "being settled"),
        (waiting(held(state="ending"), state="cancelled"), "running tasks are being ended"),
        (
            waiting(waiting_host(), discarding=True, state="closed"),
            "unclaimed tasks are being cancelled",
        ),
        (
            waiting(
                *(waiting_host(n, environment="ready") for n in "abcde"),
                state="complete",
                unfinished=0,
            ),
            "cleanup on a, b, c and 2 more",
        ),
        (
            waiting(held(state="ending", environment="preparing"), state="cancelled", unfinished=0),
            "cleanup on a",
        ),
        (
            waiting(waiting_host(environment="ready", **SILENT), state="complete", unfinished=0),
            "cleanup on a, not in contact: a (last seen 42 s ago);"
            " their teardown is owed after 90 s of silence",
        ),
        (
            waiting(
                waiting_host(environment="ready", lost_after_seconds=12.0, **SILENT),
                state="complete",
                unfinished=0,
            ),
            "cleanup on a, not in contact: a (last seen 42 s ago);"
            " their teardown is owed after 12 s of silence",
        ),
        (waiting(unfinished=0, total=0), "no task has been submitted yet"),
        (waiting(unfinished=0, state="closed"), "all tasks have ended; being completed"),
        (waiting(held(environment="ready")), None),
        (
            waiting(held(environment="ready", **SUSPECTED)),
            "a is suspected: exit code 3; it gets no more before some of them were tried on other hosts",
        ),
        (
            waiting(
                held(environment="ready", **SUSPECTED),
                waiting_host("b", environment="ready", **lease(number=2)),
            ),
            None,
        ),
        (waiting(held(environment="preparing")), "setup on a"),
        (
            waiting(held(environment="preparing", setup=setup_run("waiting", "no route"))),
            "a waits for infrastructure: no route",
        ),
        (waiting(held(state="offered")), "offered to a"),
        (waiting(held(state="ending")), "a finishes its tasks and leaves"),
        (
            waiting(waiting_host(**LEAVING, asked_back_in_seconds=240.0), max_managers=1),
            "a is being freed for it: it ends its tasks of render first,"
            " and gives back in 4 min those that have not started",
        ),
        (
            waiting(waiting_host(**LEAVING, asked_back_in_seconds=-1.0), max_managers=1),
            "a is being freed for it: it ends its tasks of render first",
        ),
        (
            waiting(waiting_host(freed_for=(Freed(GROUP, NOW),)), max_managers=1),
            "a has been freed for it, and is about to be offered",
        ),
        (
            waiting(waiting_host(**SILENT, freed_for=(Freed(GROUP, NOW),))),
            "it has as many hosts as it can use: 1 of the 1 hosts that it can use; 1 task is ready,"
            " and a host is used for each 2, 2 for its worker",
        ),
        (waiting(), "no host may serve user group team; register one there"),
        (
            waiting(waiting_host(serves=frozenset())),
            "no host may serve user group team; register one there",
        ),
        (
            waiting(waiting_host(), assignment_method="user_specified"),
            "it runs only on hosts that a user names for it, and none is named",
        ),
        (waiting(waiting_host(**NO_TAGS), **GPU), "no host has all of the tags gpu: a lacks gpu"),
        (
            waiting(waiting_host(**NO_TAGS), **GPU, tag_match="any"),
            "no host has any of the tags gpu",
        ),
        (
            waiting(waiting_host(), **CROWDED),
            "a cannot serve it: 3 exclusive workers need 3 cores, but 2 are listed: [0, 1]",
        ),
        (
            waiting(waiting_host(**NEVER), **CROWDED),
            "no host that may run it is in contact: a; silence of 10 s is allowed",
        ),
        (
            waiting(waiting_host(**FAILED)),
            f"setup failed on a: exit code 3; it waits for another host; repair one, then: {RETRY}",
        ),
        (
            waiting(waiting_host(**FAILED), waiting_host("b", **FAILED)),
            f"setup failed on a, b: exit code 3; it waits for another host; repair one, then: {RETRY}",
        ),
        (
            waiting(waiting_host(**FAILED), closes_in_seconds=7200.0),
            "setup failed on a: exit code 3; it waits for another host, until it closes in 2 h;"
            f" repair one, then: {RETRY}",
        ),
        (
            waiting(waiting_host(**FAILED), ends_if_setup_fails=True),
            "setup failed on a: exit code 3; it ends because of that",
        ),
        (
            waiting(waiting_host(**UNREACHABLE)),
            "a is unreachable: it did not take the last 2 offers within 10 s although its agent calls"
            " the API; check that it reaches Temporal; tried again in 20 s",
        ),
        (waiting(waiting_host(draining=True)), "every host that may run it is draining: a"),
        (
            waiting(waiting_host(**FAILED), waiting_host("b", **BUSY)),
            f"b busy with {OTHERS_HOLD}; setup failed on a: exit code 3",
        ),
        (waiting(waiting_host(**UNCLEAN)), "cleanup after another task group on a"),
        (
            waiting(waiting_host(unclean=frozenset({GROUP}), environment="tearing_down")),
            "cleanup on a",
        ),
        (waiting(waiting_host()), "about to be offered to a host"),
        (
            waiting(waiting_host(), unsent_seconds=42.0),
            "waiting for infrastructure: Temporal has not been reached for 42 s",
        ),
        (
            waiting(waiting_host(), state="closed", unfinished=0, unsent_seconds=600.0),
            "waiting for infrastructure: Temporal has not been reached for 10 min",
        ),
        (
            waiting(waiting_host(**NO_TAGS), waiting_host("b"), tags=frozenset({"gpu", "big"})),
            "no host has all of the tags big, gpu: b lacks big",
        ),
        (
            waiting(waiting_host(**SILENT), waiting_host("b", **NEVER)),
            "no host that may run it is in contact: a (last seen 42 s ago), b; silence of 10 s is allowed",
        ),
        (
            waiting(waiting_host(**lease(group_number=OTHER_GROUP, name="render", priority=5))),
            "a busy with another task group of higher priority: render (priority 5); this one has priority 0",
        ),
        (
            waiting(waiting_host(**BUSY)),
            f"a busy with {OTHERS_HOLD}",
        ),
        (
            waiting(held(environment="ready", alive_in_seconds=48.0, **SILENT)),
            "a has not been in contact for 42 s; its tasks go to other hosts in 48 s unless it comes"
            " back",
        ),
        (waiting(waiting_host(), ready=0, delayed_seconds=7.4), "the next attempt is due in 7 s"),
        (waiting(waiting_host(), ready=0), NOT_READY),
    ],
)
def test_the_first_rule_that_holds(facts: Waiting, expected: str | None) -> None:
    assert waiting_for(facts) == expected


def test_what_is_in_nobodys_way_says_so_without_waiting() -> None:
    working = why(waiting(held(environment="ready")))
    assert (working.waits, working.code, working.line) == (False, "working", "tasks run on a")
    over = why(waiting(settled=True, state="complete", result="success"))
    assert (over.waits, over.code, over.line) == (False, "finished", "it has ended: success")
    over = why(waiting(settled=True, state="complete", result="tasks_failed", reason="too late"))
    assert over.line == "it has ended: tasks_failed (too late)"


@pytest.mark.parametrize(
    ("known", "of_group", "code", "line"),
    [
        ({**lease(), "environment": "ready"}, {}, "working", "tasks run on a"),
        (
            {**lease(), "environment": "ready"},
            {"unfinished": 0},
            "open",
            "has nothing to do until more tasks are submitted",
        ),
        (lease("offered"), {}, "offered", "offered to a"),
        (lease("ending"), {}, "leaving", "a finishes its tasks and leaves"),
        ({"serves": frozenset()}, {}, "no_role", "has no write role in user group team"),
        (
            {},
            {"assignment_method": "user_specified"},
            "not_named",
            "is not named for the task group; to add it: mitosis group managers campaign --add a",
        ),
        (NO_TAGS, GPU, "tags", "lacks gpu; the task group needs all of gpu"),
        (
            NO_TAGS,
            {"member_tags": frozenset({"gpu"})},
            "tags",
            f"is not a member: tags have changed since its members were matched; to match again: {REFRESH}",
        ),
        (
            FAILED,
            {},
            "setup_failed",
            "setup failed: exit code 3; it is not repeated there before the agent restarts, the hook"
            f" changes, or: {RETRY}",
        ),
        (SILENT, {}, "no_contact", "was last seen 42 s ago; silence of 10 s is allowed"),
        (NEVER, {}, "no_contact", "has never been in contact; silence of 10 s is allowed"),
        (
            {"draining": True},
            {},
            "draining",
            "is draining: it finishes what it runs and takes nothing new until it is resumed",
        ),
        (
            BUSY,
            {},
            "busy",
            f"is busy with {OTHERS_HOLD}",
        ),
        (UNCLEAN, {}, "unclean", "cleans up after another task group"),
        ({"unclean": frozenset({GROUP})}, {}, "cleanup", "cleans up after this task group"),
        ({}, {}, "free", "is free"),
        ({}, {"ready": 0}, "free", "is free"),
    ],
)
def test_each_host_has_a_reason_of_its_own(
    known: dict[str, Any], of_group: dict[str, Any], code: str, line: str
) -> None:
    facts = waiting(waiting_host(**known), **of_group)
    reason = host_reason(facts.hosts[0], facts)
    assert (reason.code, reason.line) == (code, line)


def task(**known: Any) -> WaitingTask:
    values: dict[str, Any] = {
        "attempt": 0,
        "result": None,
        "kind": None,
        "manager_name": None,
        "claimed": False,
        "lost_count": 0,
        "doubted": False,
        "running_seconds": None,
        "delayed_seconds": None,
        "suspect": False,
        "silent_seconds": None,
        "alive_in_seconds": None,
        "before": 0,
    }
    return WaitingTask(**{**values, **known})


RUNS = Reason("working", "tasks run on a", waits=False)
HELD = {"claimed": True, "manager_name": "a", "attempt": 2}


@pytest.mark.parametrize(
    ("known", "of_group", "code", "line"),
    [
        (
            {"result": "failed", "kind": "exit_code", "manager_name": "a", "attempt": 2},
            RUNS,
            "finished",
            "it has failed on a, attempt 2, exit code",
        ),
        (
            {**HELD, "running_seconds": 7.0},
            RUNS,
            "working",
            "it has been running on a for 7 s, attempt 2",
        ),
        (HELD, RUNS, "claimed", "a has it and starts it when a worker is free"),
        (
            {**HELD, "suspect": True, "silent_seconds": 20.0},
            RUNS,
            "suspect",
            "a has not been in contact for 20 s",
        ),
        (
            {"attempt": 1, "delayed_seconds": 30.0},
            RUNS,
            "delayed",
            "attempt 2 is due in 30 s",
        ),
        ({}, Reason("tags", "no tags"), "tags", "no tags"),
        ({"before": 1}, RUNS, "queued", "1 other task is before it; tasks run on a"),
        ({}, RUNS, "queued", "it is next; tasks run on a"),
        (
            {"lost_count": 2},
            RUNS,
            "alone",
            "it ran on hosts that were lost, and waits until it can run alone on a host",
        ),
    ],
)
def test_a_task_has_the_reason_of_its_group_or_its_own(
    known: dict[str, Any], of_group: Reason, code: str, line: str
) -> None:
    reason = task_reason(task(**known), of_group)
    assert (reason.code, reason.line) == (code, line)
