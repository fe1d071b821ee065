"""What the command imports: nothing heavy before a subcommand is named. And the pass-through."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from mitosis.cli import COMMANDS
from mitosis.version import __version__

MAIN = "from mitosis.cli import main; main()"
HEAVY = ("pydantic", "pydantic_settings", "httpx2", "rich", "temporalio", "psycopg")


def start(*words: str, code: str = MAIN, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("MITOSIS_")}
    return subprocess.run(
        [sys.executable, "-c", code, *words],
        capture_output=True,
        text=True,
        check=False,
        env={**kept, **environment},
    )


def test_the_version_is_shown_without_importing_any_part() -> None:
    code = f"import sys\ntry:\n {MAIN}\nfinally:\n print(*sys.modules, file=sys.stderr)"
    ran = start("--version", code=code)
    assert ran.stdout == f"mitosis {__version__}\n"
    assert ran.returncode == 0
    assert set(HEAVY) & set(ran.stderr.split()) == set()


@pytest.mark.parametrize("words", [["--help"], ["group", "create", "--help"], ["doctor", "--help"]])
def test_help_imports_no_client_and_no_settings(words: list[str]) -> None:
    code = f"import sys\ntry:\n {MAIN}\nfinally:\n print(*sys.modules, file=sys.stderr)"
    ran = start(*words, code=code)
    assert ran.returncode == 0
    light = {"pydantic"}  # typer reads values with it
    assert (set(HEAVY) - light) & set(ran.stderr.split()) == set()


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
