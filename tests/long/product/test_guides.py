"""The pages for people, typed line by line into a shell beside a real `mitosis up`; answers compared."""

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.support.checkout import ROOT
from tests.support.pages import TYPED, File, Program, Step, Typed, fits, steps
from tests.support.prepared import PreparedPopen, python
from tests.support.program import (
    clean_environment,
    mitosis,
    mitosis_json,
    prepared_mitosis,
)

DOCS = ROOT / "docs"
beside: list[PreparedPopen] = []
"""What runs beside the shell of a page."""
pytestmark = pytest.mark.timeout(240)


@pytest.fixture
def env(stack: Path, tmp_path: Path) -> Iterator[Mapping[str, str]]:
    """What the shell of a reader has; all that is open is ended afterwards."""
    yield clean_environment(
        PYTHONPATH=str(ROOT),
        MITOSIS_DATA_DIR=str(stack),
        MITOSIS_API_URL=json.loads((stack / "connection.json").read_text())["api_url"],
        MITOSIS_TOKEN=(stack / "secrets" / "admin-token").read_text(),
        XDG_CONFIG_HOME=str(tmp_path),
        XDG_STATE_HOME=str(tmp_path),
        COLUMNS="100",
    )
    while beside:
        beside[-1].terminate()
        assert beside.pop().wait(60) == 0
    for state in ("open", "closed"):
        for group in mitosis_json(stack, "group", "list", "--state", state):
            mitosis("group", "cancel", "--data-dir", str(stack), group["name"])


def follow(page: list[Step], folder: Path, env: Mapping[str, str]) -> dict[str, str]:
    """Do what the page asks for; what each line printed."""
    printed = {}
    for step in page:
        match step:
            case Typed() if step.line.startswith("mitosis worker --"):
                start_beside(step.line, folder, env)
            case File():
                (folder / step.name).write_text(step.text)
            case Program():
                run_program(step.text, folder, env)
            case Typed() if not step.line.startswith("alias "):
                printed[step.line] = type_in(step, folder, env)
    return printed


def start_beside(line: str, folder: Path, env: Mapping[str, str]) -> None:
    """Start what the reader starts in a terminal of its own; it is stopped after the page."""
    program, *words = shlex.split(line)
    assert program == "mitosis"
    without = {key: value for key, value in env.items() if key != "PYTHONPATH"}
    with (folder / "beside.log").open("ab") as log:
        beside.append(PreparedPopen("mitosis.cli", words, without, log.fileno(), cwd=folder))


def type_in(step: Typed, folder: Path, env: Mapping[str, str]) -> str:
    """Run one line in a shell: it must succeed, and print what is shown if something is."""
    line = step.line.replace("/tmp/staged", f"{folder}/staged")
    without = {key: value for key, value in env.items() if key != "PYTHONPATH"}  # of programs
    shell = f'mitosis() {{ {shlex.join(prepared_mitosis(without))} "$@"; }}\n'
    shell += f'python() {{ {shlex.quote(sys.executable)} "$@"; }}\n'  # of the activated environment
    argv = ["bash", "-c", f"{shell}{line}"]
    ran = subprocess.run(
        argv, capture_output=True, text=True, check=False, env=env, cwd=folder, timeout=90
    )
    said = f"$ {line}\n{ran.stdout}{ran.stderr}"
    assert ran.returncode == 0, said
    if step.shown:
        both = (ran.stdout, ran.stderr, ran.stderr + ran.stdout, ran.stdout + ran.stderr)
        assert any(fits(step.shown, text) for text in both), f"{said}\nshown: {step.shown}"
    return ran.stdout


def run_program(text: str, folder: Path, env: Mapping[str, str]) -> str:
    argv = [*python(env), "-c", text]
    ran = subprocess.run(
        argv, capture_output=True, text=True, check=False, env=env, cwd=folder, timeout=90
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.mark.parametrize("name", TYPED)
def test_a_page_works_as_written(name: str, env: Mapping[str, str], tmp_path: Path) -> None:
    page = steps((DOCS / name).read_text())
    assert follow(page, tmp_path, env)


def test_the_quickstart_works_as_written(env: Mapping[str, str], tmp_path: Path) -> None:
    page = (DOCS / "quickstart.md").read_text()
    page = page[page.index("## 3. A first task group") :]  # what stands before starts the stack
    assert "seq 1 1000 |" in page
    printed = follow(steps(page.replace("seq 1 1000 |", "seq 1 100 |")), tmp_path, env)
    assert len(printed) > 15
    assert re.search(r"task \d+ on core \d+", printed["mitosis logs hello"])
    assert "TaskGroupWorkflow" in printed["mitosis temporal workflow list"]
    shown = type_in(Typed("mitosis group show many --json"), tmp_path, env)
    many = json.loads(shown)
    assert (many["result"], many["tasks_succeeded"]) == ("success", 100)


def test_the_program_of_the_readme_works(env: Mapping[str, str], tmp_path: Path) -> None:
    (script,) = [step for step in steps((ROOT / "README.md").read_text()) if isinstance(step, File)]
    (tmp_path / script.name).write_text(script.text)
    ran = subprocess.run(
        [*python(env), script.name],
        capture_output=True,
        text=True,
        check=False,
        env=env,
        cwd=tmp_path,
        timeout=90,
    )
    assert (ran.stdout, ran.returncode) == ("332833500\n", 0), ran.stderr
