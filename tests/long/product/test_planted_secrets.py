"""Secrets that people give are in no log, history of Temporal, error or list of processes."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest

from tests.support.processes import command_line, descendants, read
from tests.support.program import clean_environment, mitosis, mitosis_json, running_up
from tests.support.waiting import wait_until

VALUES = {
    name: f"planted-{name}-0451"
    for name in ("workers", "setup", "teardown", "probe", "task", "password", "wrong", "service")
}
TOKEN = re.compile(rb"eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}")


def hook(name: str) -> dict[str, Any]:
    return {"command": ["true"], "environment": {"SECRET": VALUES[name]}}


class Caller:
    """Raw calls over the port, as the administrator; their refusals are kept."""

    def __init__(self, data_dir: Path) -> None:
        url = json.loads((data_dir / "connection.json").read_text())["api_url"]
        token = (data_dir / "secrets" / "admin-token").read_text().strip()
        headers = {"Authorization": f"Bearer {token}"}
        self.http = httpx2.Client(base_url=f"{url}/api/v1", headers=headers, trust_env=False)
        self.refusals = b""

    def __enter__(self) -> "Caller":
        return self

    def __exit__(self, *_: object) -> None:
        self.http.close()

    def __call__(self, method: str, path: str, body: object = None) -> Any:
        answer = self.http.request(method, path, json=body)
        if answer.status_code >= 400:
            self.refusals += answer.content
        return answer.json() if answer.content else None


@pytest.mark.timeout(240)
def test_what_is_planted_is_found_nowhere_else(data_dir: Path) -> None:
    gate = data_dir.with_name("gate")
    with running_up(data_dir) as up, Caller(data_dir) as call:
        plant(call, gate)
        wait_until(lambda: mitosis_json(data_dir, "group", "show", "planted")["tasks_running"], 60)
        below = [psutil.Process(up.pid), *descendants(up.pid)]
        arguments = "\n".join(read(below, command_line)).encode()
        gate.touch()
        mitosis_json(data_dir, "group", "close", "planted")
        wait_until(lambda: mitosis_json(data_dir, "group", "show", "planted")["settled"], 60)
        call("POST", "/task-groups/planted/retry", {"idempotency_key": VALUES["wrong"] * 100})
        histories = b"".join(histories_of(data_dir))
    assert b"task_group" in histories
    places = {"arguments": arguments, "histories": histories, "refusals": call.refusals}
    places |= {str(path): path.read_bytes() for path in written(data_dir)}
    assert any("temporal.log" in name for name in places), list(places)
    found = [
        f"{name} in {place}"
        for place, content in places.items()
        for name, value in VALUES.items()
        if value.encode() in content
    ]
    assert found == []
    logs = {place: content for place, content in places.items() if place.endswith(".log")}
    assert [place for place, content in logs.items() if TOKEN.search(content)] == []


def plant(call: Caller, gate: Path) -> None:
    """Give a secret wherever one is taken, rightly and wrongly."""
    workers = {"worker_count": 2, "environment": {"SECRET": VALUES["workers"]}}
    hooks = {
        "environment_setup_hook": hook("setup"),
        "environment_teardown_hook": hook("teardown"),
        "environment_probe": hook("probe"),
    }
    group = {"name": "planted", "worker_allocation_plan": workers, **hooks}
    assert call("POST", "/task-groups", group)["name"] == "planted"
    call("POST", "/task-groups", group)  # there is one already
    wait = f"until [ -e {gate} ]; do sleep 0.05; done"
    environment = {"SECRET": VALUES["task"]}
    tasks = [
        {"command": ["sh", "-c", wait], "environment": environment},
        {"command": ["false"], "environment": environment},
        {"command": ["/no/such/program"], "environment": environment},
        {"handler": "no.such:handler", "environment": environment},
    ]
    assert call("POST", "/task-groups/planted/tasks", {"tasks": tasks})["task_ids"]
    for wrong in ({"SECRET": [VALUES["task"]]}, {"A=B": VALUES["task"]}, [VALUES["task"]]):
        task = {"command": ["true"], "environment": wrong}
        call("POST", "/task-groups/planted/tasks", {"tasks": [task]})
    call("POST", "/users", {"username": "ann", "password": VALUES["password"]})
    call("POST", "/users", {"username": "ann", "password": VALUES["password"]})
    call("POST", "/login", {"username": "ann", "password": VALUES["password"]})
    call("POST", "/login", {"username": "ann", "password": VALUES["wrong"]})
    call("POST", "/login", {"username": ["ann"], "password": VALUES["wrong"]})
    named = {"namespace": "n", "name": "t", "version": "1"}
    service = {
        "worker_id": "w",
        "supported_tasks": [named | {"configuration": {"SECRET": VALUES["service"]}}],
    }
    call("POST", "/workers", service)
    call("POST", "/workers", service | {"incarnation": VALUES["service"]})


def histories_of(data_dir: Path) -> Iterator[bytes]:
    """Each history of the namespace, with payloads decoded by the CLI."""
    env = clean_environment(MITOSIS_DATA_DIR=str(data_dir))
    listed = json.loads(mitosis("temporal", "workflow", "list", "-o", "json", env=env))
    assert listed
    for one in listed:
        words = ("--workflow-id", one["execution"]["workflowId"], "-o", "json")
        yield mitosis("temporal", "workflow", "show", *words, env=env).encode()


def written(data_dir: Path) -> Iterator[Path]:
    """All files of the stack but PostgreSQL's and the secrets; with them the log of `mitosis up`."""
    yield data_dir.with_name(f"{data_dir.name}.up.log")
    for path in data_dir.rglob("*"):
        top = path.relative_to(data_dir).parts[0]
        if path.is_file() and top not in ("postgres", "secrets"):
            yield path
