"""The container engine of a machine: found, or missing with what to install; its leftovers are removed."""

import asyncio
import os
import subprocess
from pathlib import Path

import psutil
import pytest

from mitosis.concurrency import cancel_and_wait
from mitosis.contracts.errors import ConfigurationError
from mitosis.executors.container import ContainerKind
from mitosis.executors.contract import ServiceFacts
from mitosis.executors.engine import Engine
from tests.support.container_engine import Container, container_engine
from tests.support.executor_cases import Case
from tests.support.waiting import wait_until_async


def test_without_an_engine_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    docker = tmp_path / "docker"
    docker.write_text("#!/bin/sh\necho 'Cannot connect to the Docker daemon' >&2\nexit 1\n")
    docker.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigurationError) as error:
        ContainerKind().check({"image": "a"})
    said = error.value.message
    assert "podman is not installed" in said
    assert "docker does not work: Cannot connect to the Docker daemon" in said
    assert "apt-get install podman" in said


async def test_containers_that_a_killed_process_has_left_are_removed_before_the_first_claim(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = ServiceFacts(service="mine", folder=str(tmp_path), variables={})
    with container_engine(tmp_path) as daemon:
        monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
        for name, service in (("old", "mine"), ("other", "theirs")):
            process = subprocess.Popen(["sleep", "600"], text=True, start_new_session=True)  # noqa: ASYNC220
            daemon.containers[name] = Container(name, [f"mitosis.service={service}"], process)
        left = dict(daemon.containers)
        kind = ContainerKind()
        kind.check({"image": "shop:1"})
        await kind.start(facts)
        assert set(daemon.containers) == {"other"}
        assert left["old"].process.wait(10) < 0
        assert left["other"].process.poll() is None
        daemon.close()
        left["other"].process.wait(10)


async def test_a_call_of_the_engine_that_is_cancelled_leaves_no_process(tmp_path: Path) -> None:
    slow, pid = tmp_path / "podman", tmp_path / "pid"
    slow.write_text(f"#!/bin/sh\necho $$ > {pid}.new; mv {pid}.new {pid}; exec sleep 600\n")
    slow.chmod(0o755)
    call = asyncio.create_task(Engine(str(slow)).stop("a", 10))
    await wait_until_async(pid.exists)
    await cancel_and_wait(call)
    assert not psutil.pid_exists(int(pid.read_text()))


async def test_a_container_has_labels_limits_and_a_name_of_its_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Case("container", tmp_path, monkeypatch)
    with case.staged(memory_mb=1, cpus=1, network="none", pull="never") as it:
        attempt = it.start({"do": "succeed"}, environment={"COLOUR": "red"})
        ended = await attempt.ended()
        assert ended.kind is None, ended
        (words,) = [call for call in it.daemon.calls if call[0] == "run"]
    labels = [words[i + 1] for i, word in enumerate(words) if word == "--label"]
    assert labels[0] == "mitosis.service=service-of-the-test"
    assert labels[1].startswith("mitosis.task=")
    assert labels[2] == "mitosis.attempt=1"
    assert words[words.index("--memory") + 1] == "1m"
    assert words[words.index("--cpus") + 1] == "1"
    assert words[words.index("--network") + 1] == "none"
    assert words[words.index("--pull") + 1] == "never"
    assert not any("red" in word for word in words)  # all users of the machine see argv


async def test_an_image_that_is_missing_is_not_started_with_the_reason_of_the_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Case("container", tmp_path, monkeypatch).staged(image="no-such-image") as it:
        ended = await it.start({"do": "succeed"}).ended()
    assert ended.kind == "not_started"
    assert ended.message == "the engine could not run it: Error: no-such-image: image not known"


async def test_a_variable_with_a_line_break_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Case("container", tmp_path, monkeypatch).staged() as it:
        ended = await it.start({"do": "succeed"}, environment={"TEXT": "a\nPATH=b"}).ended()
    assert (ended.kind, ended.message) == (
        "not_started",
        "the variable TEXT has a line break, which containers cannot get",
    )
