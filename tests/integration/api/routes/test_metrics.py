"""What Prometheus reads from an API process."""

from typing import Any

import httpx2
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families

from tests.support.http_api import Api, in_process_api

TASK = {"namespace": "images", "name": "resize", "version": "1"}
SERVICE = {"worker_id": "one", "incarnation": 7, "supported_tasks": [TASK]}


def samples(answer: httpx2.Response) -> dict[tuple[str, frozenset[Any]], float]:
    """Every sample by its name and labels, buckets left out."""
    assert answer.status_code == 200, answer.text
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
        if not sample.name.endswith("_bucket")
    }


async def scraped(api: Api, token: str = "") -> dict[tuple[str, frozenset[Any]], float]:
    return samples(await api.call("GET", "//metrics", token=token))


def key(name: str, **labels: str) -> tuple[str, frozenset[Any]]:
    return name, frozenset(labels.items())


def requests(method: str, route: str, status: str) -> tuple[str, frozenset[Any]]:
    name = "mitosis_http_request_seconds_count"
    return key(name, method=method, route=route, status=status)


def statements(name: str) -> tuple[str, frozenset[Any]]:
    return key("mitosis_database_statement_seconds_count", statement=name)


async def register(api: Api) -> str:
    answer = await api.call("POST", "/workers", json=SERVICE)
    assert answer.status_code == 201, answer.text
    token: str = answer.json()["token"]
    return token


async def test_nothing_is_shown_without_a_token(database: str) -> None:
    async with in_process_api(database) as api:
        assert (await api.call("GET", "//metrics", token=None)).status_code == 401
        service = await register(api)
        assert (await api.call("GET", "//metrics", token=service)).status_code == 403


@pytest.mark.spec("S004-44", "S004-46", "S004-47", "S004-48", "S004-49")
async def test_the_coverage_of_named_tasks_follows_the_services(database: str) -> None:
    async with in_process_api(database) as api:
        service = await register(api)
        active = key("mitosis_namespace_active_workers", user_group="admin", namespace="images")
        labels = {"user_group": "admin", "namespace": "images"}
        none = key("mitosis_named_tasks", **labels, available="0")
        single = key("mitosis_named_tasks", **labels, available="1")
        began = key(
            "mitosis_worker_registrations_recent", user_group="admin", event="began", reason=""
        )
        before = await scraped(api)
        assert (before[active], before[none], before[single], before[began]) == (0, 1, 0, 1)
        for path, body in (("heartbeat", {}), ("goodbye", {"reason": "done"})):
            call = {"incarnation": 7, **body}
            await api.call("POST", f"/workers/{path}", token=service, json=call)
            if path == "heartbeat":
                during = await scraped(api)
                assert (during[active], during[none], during[single]) == (1, 0, 1)
                assert during[key("mitosis_worker_services", user_group="admin", health="healthy")]
        after = await scraped(api)
        assert (after[active], after[none], after[single]) == (0, 1, 0)
        ended = dict(began[1]) | {"event": "ended", "reason": "goodbye"}
        assert after[key(began[0], **ended)] == 1


@pytest.mark.spec("S004-45", "S004-50", "S004-51", "S004-52")
async def test_calls_and_statements_are_counted_with_their_time(database: str) -> None:
    async with in_process_api(database) as api:
        service = await register(api)
        for _ in range(3):
            await api.call("POST", "/workers/heartbeat", token=service, json={"incarnation": 7})
        asked = "/named-tasks/images/resize/1/available-worker"
        assert (await api.call("GET", asked)).status_code == 200
        found = await scraped(api)
        assert found[requests("POST", "/workers", "201")] == 1
        assert found[requests("POST", "/workers/heartbeat", "200")] == 3
        total, _ = requests("POST", "/workers/heartbeat", "200")
        seconds = found[total.replace("_count", "_sum"), _]
        assert 0 < seconds < 60
        assert found[statements("services/contact.sql heartbeat")] == 3
        assert found[statements("registry/selection.sql available")] == 1
        (age,) = (v for k, v in found.items() if k[0] == "mitosis_worker_heartbeat_age_seconds")
        assert 0 <= age < 60


async def test_no_value_of_a_caller_becomes_a_label(database: str) -> None:
    """A label stays for the life of the process: paths, ids and names of callers would fill its memory."""
    async with in_process_api(database) as api:
        await register(api)
        for number in range(5):
            await api.call("GET", f"/planted-{number}")
            await api.call("GET", f"/managers/planted-{number}")
            await api.call("GET", f"/workers/planted-{number}")
            await api.call("PUT", f"/task-groups/planted-{number}")
            await api.call(f"PLANTED{number}", "/managers")
        answer = await api.call("GET", "//metrics")
        assert "planted" not in answer.text.lower()
        found = samples(answer)
        assert found[requests("GET", "unmatched", "404")] == 5
        assert found[requests("GET", "/workers/{worker_id}", "404")] == 5


async def test_open_metrics_are_sent_to_who_asks_for_them(database: str) -> None:
    async with in_process_api(database) as api:
        await register(api)
        accept = {"Accept": "application/openmetrics-text; version=1.0.0"}
        answer = await api.call("GET", "//metrics", headers=accept)
        assert answer.headers["content-type"].startswith("application/openmetrics-text")
        names = {family.name for family in open_metrics(answer.text)}  # type: ignore[no-untyped-call]
        assert {"mitosis_http_request_seconds", "mitosis_named_tasks"} <= names
        plain = await api.call("GET", "//metrics")
        assert plain.headers["content-type"].startswith("text/plain")
