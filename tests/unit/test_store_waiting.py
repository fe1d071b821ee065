"""Why nothing happens: the first rule that holds."""

from typing import Any

import pytest

from mitosis.store.waiting import waiting_for


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
        ({}, facts(manager(draining=True)), "no manager that may run it is in contact: a"),
        ({}, facts(manager(setup=FAILED), manager("b", busy=True)), "busy with another group: b"),
        ({}, facts(manager(unclean=True)), "cleanup after another group on a"),
        ({}, facts(manager()), "about to be offered to a manager"),
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
