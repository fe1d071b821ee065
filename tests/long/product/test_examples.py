"""Every example, started as a user would start it, beside one real `mitosis up`."""

import asyncio
import hashlib
import json
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from examples.parameter_sweep import sweep
from mitosis.client.finding import read_connection
from mitosis.client.sync import SyncClient
from mitosis.contracts.accounts import Role
from mitosis.embedded.data_folder import DataFolder
from mitosis.embedded.postgres import EmbeddedPostgres
from mitosis.store.pg.database import Database
from mitosis.store.store import Store
from mitosis.store.users.accounts import add_member, create_user
from tests.support.checkout import ROOT
from tests.support.prepared import python
from tests.support.program import clean_environment, mitosis, refused
from tests.support.waiting import wait_until

pytestmark = pytest.mark.timeout(180)
EXAMPLES = ROOT / "examples"


@pytest.fixture
def env(stack: Path, tmp_path: Path) -> Mapping[str, str]:
    return clean_environment(
        MITOSIS_DATA_DIR=str(stack), PYTHONPATH=str(EXAMPLES.parent), TMPDIR=str(tmp_path)
    )


def run(env: Mapping[str, str], script: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*python(env), str(EXAMPLES / script), *arguments],
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=90,
    )


def test_the_sweep_prints_what_the_function_gives_here(env: Mapping[str, str]) -> None:
    done = run(env, "parameter_sweep/sweep.py")
    assert done.returncode == 0, done.stderr
    assert "20 tasks in task group sweep-" in done.stdout
    lines = done.stdout.splitlines()[-len(sweep.CONTAGION) :]
    for contagion, line in zip(sweep.CONTAGION, lines, strict=True):
        ill, day = sweep.peak(contagion, sweep.DAYS_ILL[-1])
        assert line.split()[0] == f"{contagion:.2f}"
        assert line.endswith(f"{ill:8.1%} day{day:4.0f}")


def test_the_batch_has_a_line_for_every_file(env: Mapping[str, str], tmp_path: Path) -> None:
    folder = tmp_path / "many files"
    folder.mkdir()
    names = ["plain", "with blank", "quo'te", 'dou"ble', "; rm -rf x", "-n", "ümlaut"]
    for number, name in enumerate(names * 5):
        (folder / f"{name} {number}").write_text(name)
    done = run(env, "batch_over_files/batch.py", str(folder), str(tmp_path / "sums"))
    assert (done.returncode, done.stderr) == (0, "")
    sums = {line[66:]: line[:64] for line in (tmp_path / "sums").read_text().splitlines()}
    assert sums == {
        str(file): hashlib.sha256(file.read_bytes()).hexdigest() for file in folder.iterdir()
    }


def test_the_batch_says_what_failed(env: Mapping[str, str], tmp_path: Path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "good").write_text("x")
    (folder / "gone").symlink_to(tmp_path / "nowhere")
    done = run(env, "batch_over_files/batch.py", str(folder), str(tmp_path / "sums"))
    assert done.returncode == 1
    assert "gone" in done.stderr
    assert "1 checksums written, 1 files failed" in done.stdout


@pytest.mark.parametrize(
    ("script", "words", "status"),
    [
        ("batch_over_files/batch.py", [], 2),
        ("batch_over_files/batch.py", ["/no/such/folder", "sums"], 2),
        ("batch_over_files/batch.py", ["/tmp", "/no/such/sums"], 2),
        ("ci_pipeline/pipeline.py", ["/no/such/folder"], 1),
    ],
)
def test_wrong_arguments_of_an_example_are_answered_with_its_usage(
    script: str, words: list[str], status: int
) -> None:
    done = run(clean_environment(PYTHONPATH=str(EXAMPLES.parent)), script, *words)
    assert done.returncode == status
    assert done.stderr.startswith("usage: ")
    assert "Traceback" not in done.stderr
    assert not Path("sums").exists()


@pytest.mark.spec("S002-21")
def test_a_pipeline_that_passes_leaves_nothing(env: Mapping[str, str], tmp_path: Path) -> None:
    done = run(env, "ci_pipeline/pipeline.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed, 0 failed; result of the task group: success" in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_a_pipeline_that_fails_says_why_and_leaves_nothing(
    env: Mapping[str, str], tmp_path: Path
) -> None:
    project = tmp_path / "project"
    shutil.copytree(EXAMPLES / "ci_pipeline" / "project", project)
    (project / "money.py").write_text("def split(cents, people):\n    return [cents]\n")
    done = run(env, "ci_pipeline/pipeline.py", str(project))
    assert done.returncode == 1, done.stdout + done.stderr
    assert "FAILED" in done.stdout
    assert "AssertionError: ZeroDivisionError not raised" in done.stdout
    assert "passed" in done.stdout  # the job that compiles
    assert list(tmp_path.iterdir()) == [project]


def test_a_pipeline_whose_setup_fails_runs_nothing(env: Mapping[str, str], tmp_path: Path) -> None:
    """A folder cannot be copied into itself."""
    inside = {**env, "TMPDIR": str(tmp_path)}
    done = run(inside, "ci_pipeline/pipeline.py", str(tmp_path))
    assert done.returncode == 2, done.stdout + done.stderr
    assert "no job was run: setup failed on " in done.stderr


# --- the worker of another team


@contextmanager
def their_worker(env: Mapping[str, str], token_file: Path) -> Iterator[None]:
    """Their worker in a process of its own, with their token."""
    theirs = {**env, "MITOSIS_TOKEN_FILE": str(token_file)}
    log = token_file.with_suffix(".log")
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*python(theirs), str(EXAMPLES / "plugin" / "worker.py")],
            env=theirs,
            stdout=output,
            stderr=output,
        )
    try:
        wait_until(lambda: "waiting for workflows" in log.read_text(), 60, log.read_text)
        yield
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("more", [{}, {"TEMPORAL_ADDRESS": "127.0.0.1:9"}])
def test_their_worker_says_in_one_line_that_there_is_no_temporal(
    more: dict[str, str], tmp_path: Path
) -> None:
    env = clean_environment(MITOSIS_DATA_DIR=str(tmp_path), **more)
    done = subprocess.run(
        [*python(env), str(EXAMPLES / "plugin" / "worker.py")],
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert done.stderr.startswith("error: ")
    assert "mitosis up" in done.stderr


def user(stack: Path, name: str, role: Role | None, folder: Path) -> Path:
    """A file with the token of a new user, who has that role in the admin's user group."""
    connection = read_connection(stack)
    assert connection is not None

    async def create() -> None:
        url = EmbeddedPostgres(DataFolder(stack)).url()
        async with Database.open(url) as database:
            store = Store(database=database)
            await create_user(store, name, "secret words")
            if role is not None:
                await add_member(store, "admin", name, role)

    asyncio.run(create())
    with SyncClient(connection.api_url) as client:
        token = client.login(name, "secret words").token
    file = folder / name
    file.touch(0o600)
    file.write_text(token)
    return file


def execute(env: Mapping[str, str], kind: str, name: str, run: Any = mitosis) -> str:
    order = {"version": "1.2", "packages": 3, "user_group": "admin"}
    return str(
        run(
            *("temporal", "workflow", "execute", "--type", kind, "--workflow-id", name),
            *("--task-queue", "release-team", "--input", json.dumps(order), "-o", "json"),
            env=env,
        )
    )


def test_another_teams_workflow_gets_the_summary_with_its_own_permission(
    env: Mapping[str, str], stack: Path, tmp_path: Path
) -> None:
    token_file = user(stack, "release-team", "write", tmp_path)
    with their_worker(env, token_file):
        for kind, name in (("ReleaseWorkflow", "as-child"), ("ReleaseByName", "by-name")):
            said = execute(env, kind, name)
            assert json.loads(said)["result"] == {
                "version": "1.2",
                "result": "success",
                "packages_built": 3,
            }
            history = mitosis("temporal", "workflow", "show", "-w", name, "-o", "json", env=env)
            assert token_file.read_text() not in history
            assert len(history) < 40_000
            group = json.loads(mitosis("group", "show", name, "--json", env=env))
            assert (group["group_name"], group["tasks_succeeded"]) == ("admin", 3)


@pytest.mark.parametrize(("role", "code"), [("read", "permission_denied"), (None, "not_found")])
def test_a_team_without_the_role_is_refused_although_it_reaches_temporal(
    env: Mapping[str, str], stack: Path, tmp_path: Path, role: Role | None, code: str
) -> None:
    """Whoever may not even see a user group is told that there is none."""
    name = f"outsiders-{role}"
    with their_worker(env, user(stack, name, role, tmp_path)):
        said = execute(env, "ReleaseWorkflow", name, refused)
    assert f'"type": "{code}"' in said, said
    refused("group", "show", f"admin/{name}", env=env)


# --- the programs in the documentation

PAGE = (EXAMPLES.parent / "docs" / "sdk.md").read_text()
PROGRAMS = dict(re.findall(r"^```python\n# (\w+\.py)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))
PRINTED = {
    "squares.py": ["328350", "144"],
    "squares_async.py": ["328350", "[9, 16]"],
    "rows.py": ["row 1", "LookupError: there is no row 2", "handler_error in task [3]"],
    "checksums.py": ["success"],
}


@pytest.mark.parametrize("name", PRINTED)
def test_a_program_of_the_documentation(env: Mapping[str, str], tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(PROGRAMS[name])
    done = run(env, str(tmp_path / name))
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len([line for line in lines if line]) == (
        21 if name == "checksums.py" else len(PRINTED[name])
    )
    for line, end in zip(lines[-len(PRINTED[name]) :], PRINTED[name], strict=True):
        assert line.endswith(end)


def test_every_program_of_the_documentation_is_run() -> None:
    assert set(PROGRAMS) == set(PRINTED)
    assert PAGE.count("```python") == len(PROGRAMS)
