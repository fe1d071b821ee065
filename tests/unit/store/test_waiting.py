"""Why nothing happens: the first rule that holds."""

from typing import Any

import pytest

from mitosis.store.leases.reasons import Reason, host_reason, task_reason, waiting_for, why


def group(**facts: Any) -> dict[str, Any]:
    return {"settled": False, "state": "open", "total": 2, "unfinished": 1, **facts}


def manager(name: str = "a", **facts: Any) -> dict[str, Any]:
    return {
        "name": name,
        "draining": False,
        "cores": [0, 1],
        "silent": False,
        "named": False,
        "tags_fit": True,
        "lease": None,
        "busy": False,
        "environment": None,
        "unclean": False,
        "setup": None,
        **facts,
    }


def facts(*managers: dict[str, Any], **other: Any) -> dict[str, Any]:
    return {
        "assignment_method": "tag_matched",
        "tag_match": "all",
        "tags": ["gpu"],
        "group_name": "team",
        "plan": {"worker_count": 1},
        "priority": 0,
        "has_ready": True,
        "delayed_seconds": None,
        "managers": list(managers),
        **other,
    }


CROWDED = {"worker_count": 3, "cpu_binding": {"strategy": "exclusive"}}
FAILED = {"state": "failed", "message": None, "exit_code": 3, "signal": None}
KILLED = {"state": "failed", "message": None, "exit_code": None, "signal": 9}


@pytest.mark.parametrize(
    ("of_group", "known", "expected"),
    [
        ({"settled": True}, facts(), None),
        ({"state": "cancelled", "unfinished": 0}, facts(), "being settled"),
        ({"state": "cancelled"}, facts(manager(lease="ending")), "running tasks are being ended"),
        (
            {"discarding": True, "state": "closed"},
            facts(manager()),
            "tasks that nobody has claimed are being cancelled",
        ),
        (
            {"state": "complete", "unfinished": 0},
            facts(*(manager(n, environment="ready") for n in "abcde")),
            "cleanup on a, b, c and 2 more",
        ),
        (
            {"state": "cancelled", "unfinished": 0},
            facts(manager(lease="ending", environment="preparing")),
            "cleanup on a",
        ),
        (
            {"state": "complete", "unfinished": 0},
            facts(manager("a", environment="ready", silent=True, silent_seconds=42.0)),
            "cleanup on a, silent: a (last seen 42 s ago); their teardown is owed 90 s after that",
        ),
        ({"unfinished": 0, "total": 0}, facts(), "no task has been submitted yet"),
        ({"unfinished": 0, "state": "closed"}, facts(), "all tasks have ended; being completed"),
        ({}, facts(manager(lease="active", environment="ready")), None),
        ({}, facts(manager(lease="active", environment="preparing")), "setup on a"),
        ({}, facts(manager(lease="offered")), "offered to a"),
        ({}, facts(manager(lease="ending")), "a finishes what it runs and leaves"),
        ({}, facts(), "no manager may serve group team; register one there"),
        (
            {},
            facts(manager(), assignment_method="user_specified"),
            "it runs only on managers that a user names, and none is named",
        ),
        ({}, facts(manager(tags_fit=False)), "no manager has all of the tags gpu"),
        (
            {},
            facts(manager(), plan=CROWDED),
            "a cannot serve it: 3 exclusive workers need 3 cores, but 2 are listed: [0, 1]",
        ),
        (
            {},
            facts(manager(cores=[], silent=True), plan=CROWDED),
            "no manager that may run it is in contact: a",
        ),
        ({}, facts(manager(setup=FAILED)), "setup failed on a: exit code 3"),
        ({}, facts(manager(setup=KILLED)), "setup failed on a: killed by SIGKILL"),
        (
            {},
            facts(manager(draining=True)),
            "every manager that may run it takes nothing new: a",
        ),
        ({}, facts(manager(setup=FAILED), manager("b", busy=True)), "busy with another group: b"),
        ({}, facts(manager(unclean=True)), "cleanup after another group on a"),
        ({}, facts(manager()), "about to be offered to a manager"),
        (
            {},
            facts(manager(), unsent_seconds=42.0),
            "waiting for infrastructure: Temporal has not been reached for 42 s",
        ),
        (
            {"state": "closed", "unfinished": 0},
            facts(manager(), unsent_seconds=600.0),
            "waiting for infrastructure: Temporal has not been reached for 10 min",
        ),
        (
            {},
            facts(
                manager(tags_fit=False, tags=[]),
                manager("b", tags_fit=False, tags=["gpu"]),
                tags=["gpu", "big"],
            ),
            "no manager has all of the tags gpu, big: b lacks big",
        ),
        (
            {},
            facts(manager(silent=True, silent_seconds=42.0), manager("b", silent=True)),
            "no manager that may run it is in contact: a (last seen 42 s ago), b",
        ),
        (
            {},
            facts(manager(busy=True, busy_with={"name": "render", "priority": 5})),
            "a busy with groups of higher priority: render",
        ),
        (
            {},
            facts(manager(busy=True, busy_with={"name": "render", "priority": 0})),
            "a busy with other groups: render",
        ),
        (
            {},
            facts(
                manager(
                    lease="active",
                    environment="ready",
                    silent=True,
                    silent_seconds=42.0,
                    alive_in_seconds=48.0,
                )
            ),
            "a has not been in contact for 42 s; what it has is given to others in 48 s, unless it is back",
        ),
        (
            {},
            facts(manager(), has_ready=False, delayed_seconds=7.4),
            "the next attempt is due in 7 s",
        ),
    ],
)
def test_the_first_rule_that_holds(
    of_group: dict[str, Any], known: dict[str, Any], expected: str | None
) -> None:
    assert waiting_for(group(**of_group), known) == expected


def test_what_is_in_nobodys_way_says_so_without_waiting() -> None:
    working = why(group(), facts(manager(lease="active", environment="ready")))
    assert (working.waits, working.code, working.line) == (False, "working", "tasks run on a")
    over = why(group(settled=True, result="success"), facts())
    assert (over.waits, over.code, over.line) == (False, "finished", "it has ended: success")
    over = why(group(settled=True, result="tasks_failed", reason="too late"), facts())
    assert over.line == "it has ended: tasks_failed (too late)"


@pytest.mark.parametrize(
    ("known", "code"),
    [
        ({"lease": "active", "environment": "ready"}, "working"),
        ({"lease": "offered"}, "offered"),
        ({"tags_fit": False, "tags": []}, "tags"),
        ({"setup": FAILED}, "setup_failed"),
        ({"silent": True}, "no_contact"),
        ({"draining": True}, "draining"),
        ({"busy": True}, "busy"),
        ({"unclean": True}, "unclean"),
        ({"unclean": True, "environment": "tearing_down"}, "cleanup"),
        ({}, "free"),
    ],
)
def test_each_host_has_a_reason_of_its_own(known: dict[str, Any], code: str) -> None:
    one = manager(**known)
    assert host_reason(one, facts(one)).code == code


def task(**known: Any) -> dict[str, Any]:
    return {
        "attempt": 0,
        "result": None,
        "kind": None,
        "manager_name": None,
        "claimed": False,
        "lost_count": 0,
        "running_seconds": None,
        "delayed_seconds": None,
        "silent": False,
        "before": 0,
        **known,
    }


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
        (HELD, RUNS, "claimed", "a has it and starts it as soon as a worker is free"),
        (
            {**HELD, "silent": True, "silent_seconds": 20.0},
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
            "it was on hosts that were lost, and waits until it can run alone on one",
        ),
    ],
)
def test_a_task_has_the_reason_of_its_group_or_its_own(
    known: dict[str, Any], of_group: Reason, code: str, line: str
) -> None:
    reason = task_reason(task(**known), of_group)
    assert (reason.code, reason.line) == (code, line)
