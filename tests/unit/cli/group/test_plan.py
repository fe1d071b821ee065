"""The text of a dry run."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from mitosis.cli.group.plan import plan_item
from mitosis.contracts.plans import PlanInfo

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def info(**facts: Any) -> PlanInfo:
    values = {
        "name": "render",
        "group_name": "team",
        "hosts": [
            {
                "manager_id": UUID(int=1),
                "name": "h1",
                "gets": True,
                "code": "gets",
                "line": "would start 2 workers",
            }
        ],
        "setup": {"least": MINUTE, "expected": 2 * MINUTE, "most": 3 * MINUTE},
        "teardown": {"least": timedelta(), "expected": timedelta(), "most": timedelta()},
        "resources": {
            "hosts": 1,
            "useful_hosts": 5,
            "able_hosts": 3,
            "workers": 2,
            "cores": 4,
            "tasks": 9,
        },
        **facts,
    }
    return PlanInfo.model_validate(values)


def text(found: PlanInfo) -> dict[str, str]:
    return dict(plan_item(found).fields)


def test_bands_show_what_is_expected_and_between_what() -> None:
    moments = {"earliest": NOON, "expected": NOON + MINUTE, "latest": NOON + 2 * MINUTE}
    shown = text(info(begins=moments))
    assert shown["setup"] == "2m (1m to 3m)"
    assert shown["teardown"] == "0s"
    times = [(NOON + n * MINUTE).astimezone().strftime("%Y-%m-%d %H:%M:%S") for n in range(3)]
    assert shown["begins"] == f"{times[1]} ({times[0]} to {times[2]})"
    assert shown["gets"] == "2 workers on 1 of 3 hosts, 4 cores of their own; it has work for 5"
    assert shown["host"] == "h1: would start 2 workers"


def test_what_is_not_known_says_so() -> None:
    shown = text(info(setup={"least": timedelta()}, smallest_change="end the drain of h2"))
    assert shown["setup"] == "not measured (0s to unknown)"
    assert shown["begins"] == "unknown: no host comes to it by time alone"
    assert shown["ends"] == "unknown, like its beginning", "a duration of tasks would not help"
    assert shown["to get a host"] == "end the drain of h2"
    assert "task" not in shown


def test_the_advice_for_an_unknown_end_is_what_is_missing() -> None:
    begins = {"earliest": NOON, "expected": None, "latest": None}
    assert text(info(begins=begins))["ends"] == "unknown: give --task-duration"
    measured = {"least": MINUTE, "expected": MINUTE, "most": MINUTE}
    assert text(info(begins=begins, task=measured))["ends"] == "unknown"


def test_a_short_duration_is_not_rounded_to_seconds() -> None:
    short = timedelta(milliseconds=1500)
    shown = text(info(task={"least": short, "expected": short, "most": short}))
    assert shown["task"] == "1.5s"
