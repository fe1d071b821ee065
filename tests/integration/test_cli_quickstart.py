"""The quickstart, typed line by line into a shell beside a real `mitosis up`; and the README's Python."""

import json
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support.program import MITOSIS, clean_environment, running_up

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = (ROOT / "docs" / "quickstart.md").read_text()
README = (ROOT / "README.md").read_text()
BLOCK = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
SHELL = f'mitosis() {{ {shlex.join(MITOSIS)} "$@"; }}\n'


def lines() -> list[str]:
    """What to type from the first group on: what stands before makes and starts the stack."""
    after = PAGE[PAGE.index("## 3. A first task group") :]
    shown = [line[2:] for block in BLOCK.findall(after) for line in block.splitlines()]
    return [line for line in shown if not line.startswith("alias ")]


def type_in(line: str, folder: Path, environment: Mapping[str, str]) -> str:
    """Run one line of the page in a shell; it must succeed. What it printed."""
    ran = subprocess.run(
        ["bash", "-c", SHELL + line.replace("/tmp/staged", f"{folder}/staged")],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        cwd=folder,
        timeout=90,
    )
    assert ran.returncode == 0, f"$ {line}\n{ran.stdout}{ran.stderr}"
    return ran.stdout


@pytest.mark.timeout(240)
def test_the_quickstart_works_as_written(data_dir: Path, tmp_path: Path) -> None:
    environment = clean_environment(
        PYTHONPATH=str(ROOT),
        MITOSIS_DATA_DIR=str(data_dir),
        XDG_CONFIG_HOME=str(tmp_path),
        XDG_STATE_HOME=str(tmp_path),
    )
    with running_up(data_dir) as up:
        shown = {line: type_in(line, tmp_path, environment) for line in lines()}
        assert len(shown) > 15
        assert re.search(r"task \d+ on core \d+", shown["mitosis group tasks hello"])
        assert "TaskGroupWorkflow" in shown["mitosis temporal workflow list"]
        many = json.loads(type_in("mitosis group show many --json", tmp_path, environment))
        assert (many["result"], many["tasks_succeeded"]) == ("success", 1000)
        assert _readme_program(data_dir, tmp_path) == "success\n"
        up.send_signal(signal.SIGINT)
        assert up.wait(60) == 0
    assert not (data_dir / "connection.json").exists()


def _readme_program(data_dir: Path, folder: Path) -> str:
    """What the Python of the README prints."""
    (program,) = re.findall(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    environment = clean_environment(
        PYTHONPATH=str(ROOT),
        MITOSIS_API_URL=json.loads((data_dir / "connection.json").read_text())["api_url"],
        MITOSIS_TOKEN=(data_dir / "secrets" / "admin-token").read_text(),
    )
    ran = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
        cwd=folder,
        timeout=90,
    )
    return ran.stdout
