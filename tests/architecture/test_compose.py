"""No container engine runs in the tests: the files are parsed and held against the code instead."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from mitosis.cli.subcommands import COMMANDS
from mitosis.embedded.postgres import find_postgres_bin
from mitosis.embedded.temporal import DYNAMIC_CONFIG
from mitosis.embedded.temporal_program import find_temporal_binary
from mitosis.settings import SHORT_NAMES, Settings, environment_name, flatten, load_settings
from mitosis.version import __version__

ROOT = Path(__file__).resolve().parent.parent.parent
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = {name: service for name, service in SERVICES.items() if "build" in service}
DOCKERFILE = (ROOT / "deploy/Dockerfile").read_text()
PINNED = re.compile(r"^[\w./-]+:v?\d+\.\d+[\w.-]*$")
SECRET = re.compile(r"\$\{POSTGRES_PASSWORD:\?[^}]+\}")


def words(program: Path) -> str:
    return subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout


def tag(service: str) -> str:
    return str(SERVICES[service]["image"]).rpartition(":")[2]


def test_the_stack_is_whole() -> None:
    assert set(SERVICES) == {
        *("postgres", "temporal-schema", "temporal", "temporal-ui"),
        *("migrate", "api", "control", "agent"),
    }
    assert set(OURS) == {"migrate", "api", "control", "agent"}


@pytest.mark.parametrize("name", SERVICES)
def test_images_are_pinned_by_tag(name: str) -> None:
    assert PINNED.match(SERVICES[name]["image"])


def test_image_versions_are_those_the_tests_run_on() -> None:
    assert {tag(name) for name in OURS} == {__version__}
    server = re.search(r"\d+\.\d+", words(find_postgres_bin() / "postgres"))
    assert server is not None
    assert tag("postgres") == server[0]
    temporal = re.search(r"Server ([\d.]+), UI ([\d.]+)", words(find_temporal_binary()))
    assert temporal is not None
    assert (tag("temporal"), tag("temporal-ui")) == temporal.groups()
    assert tag("temporal-schema") == tag("temporal")


@pytest.mark.parametrize("name", OURS)
def test_commands_are_those_of_the_program(name: str) -> None:
    assert SERVICES[name]["command"] == [name]
    assert name in COMMANDS


@pytest.mark.parametrize("name", OURS)
def test_settings_exist_and_are_valid(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    known = {environment_name(key) for key in flatten(Settings().model_dump())} | set(SHORT_NAMES)
    given: dict[str, str] = SERVICES[name]["environment"]
    assert set(given) <= known
    for variable, value in given.items():
        monkeypatch.setenv(variable, SECRET.sub("x", value))
    load_settings()


def test_an_agent_has_no_database() -> None:
    assert not [name for name in SERVICES["agent"]["environment"] if "DATABASE" in name]
    assert "postgres" not in SERVICES["agent"]["depends_on"]


def test_secrets_come_from_outside_and_have_no_default() -> None:
    text = json.dumps(COMPOSE)
    assert "$" not in SECRET.sub("", text).replace("$$", "")
    for name, service in SERVICES.items():
        for variable, value in service.get("environment", {}).items():
            if "PASSWORD" in variable or "PWD" in variable:
                assert SECRET.fullmatch(value), f"{name}: {variable}"


def test_ports_agree_and_are_published_on_loopback_only() -> None:
    published = {}
    for name, service in SERVICES.items():
        for mapping in service.get("ports", []):
            address, host_port, port = mapping.split(":")
            assert address == "127.0.0.1"
            published[name] = (host_port, port)
    api = SERVICES["api"]
    port = api["environment"]["MITOSIS_API__PORT"]
    assert published["api"] == (port, port)
    assert SERVICES["agent"]["environment"]["MITOSIS_API_URL"] == f"http://api:{port}"
    assert f"http://127.0.0.1:{port}/ready" in api["healthcheck"]["test"][-1]
    assert published["temporal"] == ("7233", "7233")
    for name in ("api", "control", "migrate", "agent"):
        assert SERVICES[name]["environment"]["MITOSIS_TEMPORAL_ADDRESS"] == "temporal:7233"
    ui = SERVICES["api"]["environment"]["MITOSIS_TEMPORAL__UI_URL"]
    assert ui == f"http://127.0.0.1:{published['temporal-ui'][0]}"


@pytest.mark.parametrize("name", SERVICES)
def test_what_is_waited_for_exists_and_can_be_waited_for(name: str) -> None:
    for other, how in SERVICES[name].get("depends_on", {}).items():
        if how["condition"] == "service_healthy":
            assert "healthcheck" in SERVICES[other]
        else:
            assert how["condition"] == "service_completed_successfully"
            assert other in {"migrate", "temporal-schema"}


def test_volumes_are_declared_and_mounted_files_exist() -> None:
    for service in SERVICES.values():
        for mount in service.get("volumes", []):
            source = mount.split(":")[0]
            if source.startswith("./"):
                assert (ROOT / source).is_file()
            else:
                assert source in COMPOSE["volumes"]


def test_cluster_and_embedded_server_have_the_same_dynamic_configuration() -> None:
    """But for what only the one shard of the embedded server needs."""
    text = (ROOT / "deploy/temporal-dynamic-config.yaml").read_text()
    cluster = {key: rules[0]["value"] for key, rules in yaml.safe_load(text).items()}
    embedded = {key: json.loads(value) for key, value in DYNAMIC_CONFIG.items()}
    only_embedded = {key for key in embedded if key.endswith("MaxPollRPS")}
    assert cluster == {key: embedded[key] for key in embedded if key not in only_embedded}


def test_dockerfile_is_pinned_and_starts_our_command() -> None:
    bases = re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)
    assert bases
    assert all(PINNED.match(base) for base in bases)
    assert len({base.split("-")[0] for base in bases}) == 1
    assert "--require-hashes" in DOCKERFILE
    assert 'ENTRYPOINT ["mitosis"]' in DOCKERFILE
    assert re.search(r"^USER mitosis$", DOCKERFILE, re.MULTILINE)
    assert "latest" not in DOCKERFILE


@pytest.mark.parametrize("name", OURS)
def test_data_folder_of_a_container_is_its_volume(name: str) -> None:
    folder = SERVICES[name]["environment"]["MITOSIS_DATA_DIR"]
    assert f"--home-dir {folder} " in DOCKERFILE
    assert f"VOLUME {folder}\n" in DOCKERFILE
