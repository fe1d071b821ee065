"""The parts as `docker-compose.yml` runs them, each in a process of its own, without containers."""

import json
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
import yaml
from psycopg import sql

from mitosis.embedded.data_folder import free_port
from mitosis.embedded.postgres import EmbeddedPostgres
from tests.support.checkout import ROOT
from tests.support.program import MITOSIS, clean_environment, mitosis
from tests.support.waiting import wait_until

SERVICES: dict[str, dict[str, Any]] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())[
    "services"
]


class Compose:
    """Runs services of the compose file on this host: its commands, and its environment translated."""

    def __init__(self, place: Path, database_url: str, temporal_address: str) -> None:
        self._place = place
        port = str(free_port())
        self._words = {
            "postgresql://mitosis:${POSTGRES_PASSWORD:?choose one}@postgres:5432/mitosis": database_url,
            "temporal:7233": temporal_address,
            "http://api:8400": f"http://127.0.0.1:{port}",
            "8400": port,
            SERVICES["api"]["environment"]["MITOSIS_API__HOST"]: "127.0.0.1",
            "/run/mitosis-api": str(place / "api"),
        }
        self._own = {"MITOSIS_TEMPORAL__NAMESPACE": f"compose-{uuid.uuid4().hex[:8]}"}

    def environment(self, service: str) -> dict[str, str]:
        given: dict[str, str] = SERVICES[service]["environment"]
        words = self._words | {"/var/lib/mitosis": str(self._place / service)}
        env = clean_environment()
        for name, value in given.items():
            for ours, here in words.items():
                value = value.replace(ours, here)
            env[name] = value
        return env | self._own

    def once(self, service: str, *arguments: str) -> str:
        """As `docker compose run`, or `exec` of a command: to its end, which must be good."""
        return mitosis(*arguments, env=self.environment(service))

    @contextmanager
    def running(self, service: str) -> Iterator[subprocess.Popen[bytes]]:
        """A service; stopped as a container is, and it must end well in time."""
        with (self._place / f"{service}.log").open("wb") as log:
            process = subprocess.Popen(
                [*MITOSIS, *SERVICES[service]["command"]],
                env=self.environment(service),
                stdout=log,
                stderr=log,
            )
        try:
            yield process
            process.terminate()
            assert process.wait(40) == 0, self.story(service)
        finally:
            process.kill()
            process.wait()

    def healthy(self, service: str) -> bool:
        """The health check of the compose file, word for word but for the port."""
        test = [word for word in SERVICES[service]["healthcheck"]["test"] if word != "CMD"]
        for ours, here in self._words.items():
            test = [word.replace(ours, here) for word in test]
        test[0] = sys.executable if test[0] == "python" else test[0]
        return subprocess.run(test, capture_output=True, check=False).returncode == 0

    def story(self, *services: str) -> str:
        return "\n".join((self._place / f"{name}.log").read_text()[-3000:] for name in services)


@pytest.fixture
def empty_database(postgres: EmbeddedPostgres) -> Iterator[str]:
    """A database that nobody has migrated."""
    name = sql.Identifier(f"compose_{uuid.uuid4().hex[:12]}")
    with psycopg.connect(postgres.url("postgres"), autocommit=True) as link:
        link.execute(sql.SQL("CREATE DATABASE {}").format(name))
        yield postgres.url(name.as_string().strip('"'))
        link.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(name))


def managers(compose: Compose) -> list[tuple[str, list[str]]]:
    shown = json.loads(compose.once("api", "manager", "list", "--json"))
    return [(one["state"], one["tags"]) for one in shown]


@pytest.mark.spec("S002-107", "S002-154", "S002-263")
def test_the_services_of_the_compose_file_run_a_task_together(
    tmp_path: Path, empty_database: str, temporal_server: str
) -> None:
    compose = Compose(tmp_path, empty_database, temporal_server)
    compose.once("migrate", *SERVICES["migrate"]["command"])
    with ExitStack() as services:
        services.enter_context(compose.running("api"))
        wait_until(lambda: compose.healthy("api"), 40, lambda: compose.story("api"))
        services.enter_context(compose.running("control"))
        services.enter_context(compose.running("agent"))
        everybody = ("api", "control", "agent")
        wait_until(
            lambda: managers(compose) == [("idle", ["compose"])],
            40,
            lambda: compose.story(*everybody),
            interval=0.5,
        )
        compose.once("api", "group", "create", "hello", "--tag", "compose", "--json")
        compose.once("api", "group", "submit", "hello", "--json", "--", "true")
        compose.once("api", "group", "close", "hello", "--json")
        compose.once("api", "group", "wait", "hello", "--json")
        shown = json.loads(compose.once("api", "group", "show", "hello", "--json"))
        assert (shown["state"], shown["result"]) == ("complete", "success")
