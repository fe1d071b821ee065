"""What the doctor finds on a machine that is not well, and that looking changes nothing."""

import os
import socket
from pathlib import Path

import pytest

from mitosis.cli.exit import ExitStatus
from tests.support.command import Ran, mitosis


@pytest.fixture(autouse=True)
def healthy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith("MITOSIS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("MITOSIS_DATA_DIR", str(tmp_path / "data"))


def check(name: str) -> dict[str, str]:
    report = mitosis("doctor", "--json").json
    (found,) = [check for check in report["checks"] if check["name"] == name]
    assert isinstance(found, dict)
    return found


def states(ran: Ran) -> dict[str, str]:
    return {check["name"]: check["state"] for check in ran.json["checks"]}


def test_a_machine_on_which_nothing_runs_yet_is_well(tmp_path: Path) -> None:
    ran = mitosis("doctor", "--json")
    assert ran.status == ExitStatus.OK
    assert ran.json["ok"] is True
    assert states(ran)["api"] == "warn"
    assert "fail" not in states(ran).values()
    assert not (tmp_path / "data").exists()


def test_people_read_what_to_do_below_the_table() -> None:
    ran = mitosis("doctor")
    assert "warn: api: no stack runs" in ran.out
    assert ran.out.rstrip().endswith("checks failed")


def test_a_data_folder_that_others_can_read(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data").chmod(0o755)
    found = check("data folder")
    assert (found["state"], found["advice"]) == ("warn", f"chmod 700 {tmp_path / 'data'}")
    assert (tmp_path / "data").stat().st_mode & 0o777 == 0o755


def test_a_data_folder_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    found = check("data folder")
    assert found["state"] == "fail"
    assert "not a folder" in found["found"]


def test_a_port_that_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setenv("MITOSIS_TEMPORAL__UI_PORT", str(port))
        ran = mitosis("doctor", "--json")
        assert ran.status == ExitStatus.PROBLEM_FOUND
        found = check(f"port {port}")
        assert found["state"] == "fail"
        assert "MITOSIS_TEMPORAL__UI_PORT" in found["advice"]
        assert mitosis("doctor", "--quiet").out == f"port {port}\n"


def test_a_socket_folder_that_is_too_deep(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MITOSIS_RUN_DIR", str(tmp_path / ("deep" * 30)))
    found = check("socket folder")
    assert found["state"] == "fail"
    assert "the limit is 107" in found["found"]
    assert "MITOSIS_RUN_DIR" in found["advice"]


@pytest.mark.parametrize(
    ("variable", "name"), [("MITOSIS_PG_BIN", "postgresql"), ("MITOSIS_TEMPORAL_BIN", "temporal")]
)
def test_a_missing_program(monkeypatch: pytest.MonkeyPatch, variable: str, name: str) -> None:
    monkeypatch.setenv(variable, "/no/such")
    found = check(name)
    assert found["state"] == "fail"
    assert "/no/such" in found["found"]
    assert "MITOSIS_" in found["advice"]


def test_servers_of_ones_own_that_do_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MITOSIS_DATABASE_URL", "postgresql://ann:very-secret@127.0.0.1:1/x")
    monkeypatch.setenv("MITOSIS_TEMPORAL_ADDRESS", "127.0.0.1:1")
    ran = mitosis("doctor", "--json")
    found = states(ran)
    assert (found["database"], found["temporal server"]) == ("fail", "fail")
    assert "postgresql" not in found  # the embedded programs are not needed then
    assert "very-secret" not in ran.out + ran.err
