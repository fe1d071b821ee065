"""What the command imports: nothing heavy before a subcommand is named. And the pass-through."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from mitosis.cli.subcommands import COMMANDS
from mitosis.version import __version__

MAIN = "from mitosis.cli import main; main()"
SERVERS = {"fastapi", "psycopg", "sqlalchemy", "temporalio", "uvicorn", "zmq"}
CLIENT = {"httpx2", "pydantic_settings"}
HEAVY = {*SERVERS, *CLIENT, "asyncio", "pydantic", "rich"}
LISTING = f"import sys\ntry:\n {MAIN}\nfinally:\n print(*sys.modules, file=sys.stderr)"
"""The program, and on standard error what it has imported."""


def start(*words: str, code: str = MAIN, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("MITOSIS_")}
    return subprocess.run(
        [sys.executable, "-c", code, *words],
        capture_output=True,
        text=True,
        check=False,
        env={**kept, **environment},
    )


def imported(*words: str, status: int = 0, **environment: str) -> set[str]:
    """Return the modules that a command line has loaded at its end."""
    ran = start(*words, code=LISTING, **environment)
    assert ran.returncode == status, ran.stderr
    modules = set(ran.stderr.splitlines()[-1].split())
    assert "builtins" in modules, "it ended without its list: " + ran.stderr
    return modules


@pytest.mark.parametrize("words", [["--version"], ["--help"]])
def test_before_a_subcommand_is_named_no_part_of_the_product_is_imported(words: list[str]) -> None:
    modules = imported(*words)
    assert HEAVY & modules == set()
    parts = {name for name in modules if name.startswith("mitosis.")}
    assert not [name for name in parts if name.count(".") > 2], "a subcommand"


@pytest.mark.parametrize(
    "words",
    [["group", "create", "--help"], ["doctor", "--help"], ["job", "check", "--help"]],
)
def test_help_of_a_subcommand_imports_no_client_and_no_settings(words: list[str]) -> None:
    light = {"pydantic"}  # typer reads values with it
    assert (HEAVY - light) & imported(*words) == set()


@pytest.mark.parametrize(
    "words", [["group", "list"], ["config", "show"], ["whoami"], ["temporal", "workflow", "list"]]
)
def test_a_command_of_a_client_imports_no_server(words: list[str], tmp_path: Path) -> None:
    status = 0 if words[0] == "config" else 69
    modules = imported(*words, status=status, MITOSIS_DATA_DIR=str(tmp_path / "nothing"))
    assert (SERVERS | {"rich"}) & modules == set()
    assert not {"api", "activities", "manager_agent", "workflows"} & modules


def test_the_version_is_shown() -> None:
    ran = start("--version")
    assert (ran.returncode, ran.stdout) == (0, f"mitosis {__version__}\n")


def test_help_lists_every_command_and_needs_no_rich() -> None:
    ran = start("--help", code=f"import sys; sys.modules['rich'] = None\n{MAIN}")
    assert ran.returncode == 0
    for name in COMMANDS:
        assert f"\n  {name} " in ran.stdout


def test_without_a_command_the_help_is_an_error() -> None:
    ran = start()
    assert ran.returncode == 2
    assert ran.stdout == ""
    assert ran.stderr.startswith("Usage: mitosis")


def test_the_application_folder_is_entered_first() -> None:
    code = f"import sys\ntry:\n {MAIN}\nfinally:\n print(sys.path[0], file=sys.stderr)"
    assert Path(start("--version", code=code).stderr.strip(), "workflows").is_dir()


@pytest.fixture
def fake_temporal(tmp_path: Path) -> Path:
    program = tmp_path / "temporal"
    program.write_text(
        "#!/bin/sh\n"
        'echo "$TEMPORAL_ADDRESS $TEMPORAL_NAMESPACE"\n'
        'for word in "$@"; do echo "<$word>"; done\n'
        "exit 7\n"
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return program


def test_every_word_goes_to_the_temporal_cli(fake_temporal: Path) -> None:
    words = ["workflow", "list", "--help", "--query", "A = 'b c'", "--json", "--", "-x"]
    ran = start(
        "temporal",
        *words,
        MITOSIS_TEMPORAL_BIN=str(fake_temporal),
        MITOSIS_TEMPORAL_ADDRESS="example.invalid:7233",
        MITOSIS_TEMPORAL__NAMESPACE="other",
    )
    assert ran.stdout.splitlines() == [
        "example.invalid:7233 other",
        *[f"<{word}>" for word in words],
    ]
    assert ran.returncode == 7


def test_without_a_server_the_temporal_cli_is_not_started(
    fake_temporal: Path, tmp_path: Path
) -> None:
    ran = start(
        "temporal",
        "workflow",
        "list",
        MITOSIS_TEMPORAL_BIN=str(fake_temporal),
        MITOSIS_DATA_DIR=str(tmp_path / "nothing"),
    )
    assert ran.returncode == 69
    assert ran.stdout == ""
    assert "mitosis up" in ran.stderr


@pytest.mark.parametrize(
    "words", [["--version"], ["--help"], ["workflow", "list", "--help"], ["help", "env"], []]
)
def test_what_the_temporal_cli_says_about_itself_needs_no_server(
    fake_temporal: Path, tmp_path: Path, words: list[str]
) -> None:
    ran = start(
        "temporal",
        *words,
        MITOSIS_TEMPORAL_BIN=str(fake_temporal),
        MITOSIS_DATA_DIR=str(tmp_path / "nothing"),
    )
    assert ran.returncode == 7
    assert ran.stdout.split()[-len(words) or len(ran.stdout) :] == [f"<{word}>" for word in words]


def test_a_missing_temporal_program_is_named(tmp_path: Path) -> None:
    ran = start("temporal", MITOSIS_TEMPORAL_BIN=str(tmp_path / "gone"))
    assert ran.returncode == 78
    assert f"no temporal program at {tmp_path / 'gone'}" in ran.stderr
