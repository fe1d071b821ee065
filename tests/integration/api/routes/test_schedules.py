"""Schedules over HTTP: made, changed, shown to whom, and refused by field; no Temporal is needed."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from api.auth import Subject
from mitosis.store.users.accounts import add_member, create_user
from tests.support.http_api import Api, in_process_api
from tests.support.schedules import start_of

JOB = {
    "name": "etl",
    "parameters": {"date": {}, "n": {"type": "integer", "default": 1}},
    "steps": {"a": {"command": ["echo", "{{ params.date }}", "{{ run.nominal_time }}"]}},
}
SECRET = {"date": "{{ run.nominal_date }}"}


def nested(depth: int) -> Any:
    found: Any = []
    for _ in range(depth):
        found = [found]
    return found


@pytest.fixture
async def api(database: str) -> AsyncIterator[Api]:
    async with in_process_api(database) as opened:
        async with opened.client() as client:
            await client.define_job(JOB)
        yield opened


async def call(api: Api, method: str, path: str, token: str = "", **given: Any) -> Any:
    answer = await api.call(method, path, token=token, **given)
    return answer.json() if answer.content else answer.status_code


async def create(api: Api, **fields: Any) -> Any:
    body = {"job": "etl", "cron": "30 2 * * *", "parameters": SECRET, **fields}
    return await call(api, "POST", "/schedules", json=body)


async def test_a_schedule_is_shown_before_it_is_stored_and_changed_by_field(api: Api) -> None:
    planned = await create(api, dry_run=True, time_zone="Europe/Berlin")
    assert len(planned["next_times"]) == 5
    assert all(time[11:16] == "02:30" for time in planned["next_times"])
    assert (await call(api, "GET", "/schedules"))["items"] == []
    made = await create(api, time_zone="Europe/Berlin", jitter="5m", note="hello")
    assert (made["name"], made["overlap"], made["jitter"], made["catch_up"]) == (
        "etl",
        "skip",
        300.0,
        86400.0,
    )
    assert made["next_times"] == planned["next_times"]
    taken = await create(api)
    assert (taken["code"], taken["field"]) == ("already_exists", "name")

    path = "/schedules/admin/etl"
    changed = await call(api, "PATCH", path, json={"interval": {"every": "1h"}, "note": None})
    assert (
        changed["cron"],
        changed["interval"]["every"],
        changed["note"],
        changed["revision"],
    ) == (
        None,
        3600.0,
        None,
        2,
    )
    shown = await call(api, "PATCH", path, json={"cron": "@daily", "dry_run": True})
    assert (shown["cron"], (await call(api, "GET", path))["cron"]) == ("@daily", None)
    paused = await call(api, "POST", f"{path}/pause", json={"note": "off"})
    assert (paused["paused"], paused["note"], paused["next_times"]) == (True, "off", [])
    again = await call(api, "POST", f"{path}/pause")
    assert again["revision"] == paused["revision"]
    resumed = await call(api, "POST", f"{path}/resume")
    assert (resumed["paused"], resumed["revision"]) == (False, paused["revision"] + 1)
    (listed,) = (await call(api, "GET", "/schedules", params={"job": "etl"}))["items"]
    assert listed == resumed | {"next_times": listed["next_times"]}
    assert await call(api, "DELETE", path) == 204
    assert (await call(api, "GET", path))["code"] == "not_found"


@pytest.mark.parametrize(
    ("fields", "status", "field"),
    [
        ({"cron": None}, 422, "cron"),
        ({"interval": {"every": 60}}, 422, "cron"),
        ({"cron": "0 0 30 2 *"}, 422, "cron"),
        ({"end_at": "2026-01-01T00:00Z"}, 422, "end_at"),
        (
            {"start_at": "2036-01-02T00:00Z", "end_at": "2036-01-01T00:00Z"},
            422,
            "end_at",
        ),
        ({"parameters": {}}, 422, "parameters.date"),
        ({"parameters": {"date": nested(900)}}, 422, "parameters"),
        ({"parameters": {"date": "x", "m": 1}}, 422, "parameters.m"),
        ({"parameters": {"date": "{{ run.id }}"}}, 422, "parameters.date"),
        ({"version": 7}, 404, None),
        ({"job": "other"}, 404, None),
        ({"time_zone": "Mars/Base"}, 422, "time_zone"),
    ],
)
async def test_a_schedule_is_refused_by_its_field(
    api: Api, fields: dict[str, Any], status: int, field: str | None
) -> None:
    body = {"job": "etl", "cron": "30 2 * * *", "parameters": SECRET, **fields}
    answer = await api.call("POST", "/schedules", json=body)
    assert answer.status_code == status, answer.text
    if field is not None:
        assert field in answer.text


async def test_a_backfill_lists_the_times_without_a_run(api: Api) -> None:
    made = await create(api, time_zone="Europe/Berlin")
    path, store = "/schedules/admin/etl/backfill", api.app_state.store
    night = datetime(2026, 10, 25, 0, 30, tzinfo=UTC)
    started = await start_of(store, made["schedule_id"], night)
    body = {"first": "2026-10-24T00:00Z", "last": "2026-10-27T00:00Z", "dry_run": True}
    answer = await call(api, "POST", path, json=body)
    assert answer == {
        "times": ["2026-10-24T02:30:00+02:00", "2026-10-26T02:30:00+01:00"],
        "have_runs": 1,
    }
    future = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    for wrong, field in (
        ({"last": future}, "last"),
        ({"first": "2026-10-24T03:00Z", "last": "2026-10-24T04:00Z"}, "first"),
        ({"first": "2020-01-01T00:00Z"}, "last"),
    ):
        refusal = await call(api, "POST", path, json={**body, **wrong})
        assert refusal["field"] == field, refusal
    for given, count in (("etl", 1), ("admin/etl", 1), ("other/etl", 0), ("other", 0)):
        listed = await call(api, "GET", "/runs", params={"schedule": given})
        assert len(listed["items"]) == count, given
    shown = await call(api, "GET", f"/runs/{started}")
    assert (shown["schedule"], shown["nominal_time"]) == ("etl", "2026-10-25T00:30:00Z")
    assert shown["parameters"] == {"date": "2026-10-25", "n": 1}
    tasks = await call(api, "GET", f"/runs/{started}/steps/a/tasks")
    group = tasks["items"][0]["task_group_id"]
    (task,) = (await call(api, "GET", f"/task-groups/{group}/tasks"))["items"]
    assert task["spec"]["command"] == ["echo", "2026-10-25", "2026-10-25T02:30:00+02:00"]
    await call(api, "POST", f"/runs/{started}/cancel")
    again = await call(api, "POST", f"/runs/{started}/rerun")
    assert (again["nominal_time"], again["schedule"]) == ("2026-10-25T00:30:00Z", None)


async def test_readers_see_no_values_and_change_nothing(api: Api) -> None:
    await create(api)
    store = api.app_state.store
    tokens = {}
    for name in ("reader", "stranger"):
        user = await create_user(store, name)
        subject = Subject("user", user.user_id, 1)
        tokens[name] = api.app_state.signer.issue(subject, timedelta(hours=1)).token
    await add_member(store, "admin", "reader", "read")
    shown = await call(api, "GET", "/schedules/admin/etl", tokens["reader"])
    assert shown["parameters"] == {"date": None}
    (listed,) = (await call(api, "GET", "/schedules", tokens["reader"]))["items"]
    assert listed["parameters"] == {"date": None}
    assert (await call(api, "GET", "/schedules", tokens["stranger"]))["items"] == []
    refused = await call(api, "POST", "/schedules/admin/etl/trigger", tokens["reader"])
    assert refused["code"] == "permission_denied"
    hidden = await call(api, "DELETE", "/schedules/admin/etl", tokens["stranger"])
    assert hidden["code"] == "not_found"
    refused = await call(api, "DELETE", "/jobs/etl")
    assert (refused["code"], refused["schedules"]) == ("conflict", ["admin/etl"])
    await create(api, name="weekly")
    refused = await call(api, "DELETE", "/jobs/etl")
    assert refused["detail"].startswith("the job has the schedules admin/etl, admin/weekly: delete")


async def test_a_schedule_that_cannot_be_read_is_listed_beside_others_without_times(
    api: Api,
) -> None:
    await create(api)
    await create(api, name="mars")
    await create(api, name="other", cron=None, interval={"every": "1h"})
    async with api.app_state.store.database.connection() as connection:
        for change in (
            "time_zone = 'Mars/Base' WHERE name = 'mars'",
            "timing = '{\"interval\": {\"every\": 1}}' WHERE name = 'other'",
        ):
            await connection.execute(f"UPDATE schedules SET {change}")  # noqa: S608
    items = (await call(api, "GET", "/schedules"))["items"]
    assert [(one["name"], len(one["next_times"])) for one in items] == [
        ("etl", 5),
        ("mars", 0),
        ("other", 0),
    ]
    assert "at least 10 seconds" in items[2]["problem"]
    assert (await call(api, "GET", "/schedules/admin/mars"))["next_times"] == []
    body = {"first": "2026-10-24T00:00Z", "last": "2026-10-27T00:00Z"}
    refused = await call(api, "POST", "/schedules/admin/mars/backfill", json=body)
    assert (refused["code"], "Mars/Base" in refused["detail"]) == ("unavailable", True)


async def test_a_pause_drops_what_waits_if_it_is_asked_to(api: Api) -> None:
    made = await create(api)
    path = "/schedules/admin/etl"
    asked = await call(api, "POST", f"{path}/trigger")
    kept = await call(api, "POST", f"{path}/pause")
    assert (kept["paused"], kept["without_run"]) == (True, None)
    dropped = await call(api, "POST", f"{path}/pause", json={"drop": True})
    assert (dropped["revision"], made["without_run"]) == (kept["revision"], None)
    assert dropped["without_run"]["nominal_time"] == asked["nominal_time"]
    wrong = await call(api, "POST", f"{path}/resume", json={"drop": True})
    assert wrong["code"] == "invalid_request"
