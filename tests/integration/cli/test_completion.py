"""Tab in a real shell, after the one command that the quickstart names."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support.cli_stack import cli_stack
from tests.support.command import mitosis
from tests.support.program import clean_environment
from tests.support.servers import LoopThread
from tests.support.terminal import Terminal

PROGRAMS = Path(sys.executable).parent

pytestmark = [
    pytest.mark.timeout(90),
    pytest.mark.skipif(not (PROGRAMS / "mitosis").exists(), reason="not installed"),
]


@pytest.fixture
def home(tmp_path: Path) -> Mapping[str, str]:
    """A person's environment, with nothing in the home folder."""
    return clean_environment(
        HOME=str(tmp_path),
        PATH=f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}",
        MITOSIS_DATA_DIR=str(tmp_path / "data"),
        XDG_CONFIG_HOME=str(tmp_path),
        TERM="xterm",
    )


def install(home: Mapping[str, str]) -> None:
    line = ["bash", "-c", "mitosis --install-completion; true"]
    done = subprocess.run(line, env=home, capture_output=True, text=True, check=True, timeout=60)
    assert "bash completion installed" in done.stdout
    with (Path(home["HOME"]) / ".bashrc").open("a") as rc:
        rc.write("PS1='ready> '\n")


def after_tab(home: Mapping[str, str], typed: str, expected: str) -> None:
    """Press Tab behind what was typed, until the line on the screen goes on as expected."""
    argv = ["bash", "--rcfile", f"{home['HOME']}/.bashrc", "-i"]
    with Terminal(argv, home, home["HOME"], 100) as terminal:
        terminal.read_until("ready> ")
        terminal.press(f"{typed}\t")
        terminal.read_until(expected, 20)
        terminal.press("\x15exit\r")
        terminal.end()


def test_commands_options_and_choices_are_completed(home: Mapping[str, str]) -> None:
    install(home)
    after_tab(home, "mitosis doc", "mitosis doctor ")
    after_tab(home, "mitosis group cre", "mitosis group create ")
    after_tab(home, "mitosis run --cores-p", "mitosis run --cores-per-worker ")
    after_tab(home, "mitosis run --pin ex", "mitosis run --pin exclusive ")


def test_files_are_completed_where_we_know_nothing(home: Mapping[str, str]) -> None:
    install(home)
    (Path(home["HOME"]) / "only-this-file.txt").touch()
    after_tab(home, "mitosis run gzip onl", "mitosis run gzip only-this-file.txt ")


def test_names_of_groups_are_completed(
    home: Mapping[str, str], server_loop: LoopThread, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(home)
    after_tab(home, "mitosis group show nig", "nig")  # no stack: nothing, and no error
    data_dir = Path(home["MITOSIS_DATA_DIR"])
    with cli_stack(server_loop, database, data_dir):
        monkeypatch.setenv("MITOSIS_DATA_DIR", str(data_dir))
        assert mitosis("group", "create", "nightly-render").status == 0
        after_tab(home, "mitosis group show nig", "mitosis group show nightly-render ")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_gets_a_script(home: Mapping[str, str], shell: str) -> None:
    done = subprocess.run(
        ["mitosis"],
        env={**home, "_MITOSIS_COMPLETE": f"source_{shell}"},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert f"complete_{shell}" in done.stdout
