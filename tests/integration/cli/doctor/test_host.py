"""What the doctor finds on a machine that is not well, and that looking changes nothing."""

import json
import os
import shlex
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from mitosis.cli.doctor.host import (
    _memory_events,
    _process_limit,
    _user_namespaces,
)
from mitosis.cli.doctor.servers import clock_check
from mitosis.cli.exit import ExitStatus
from tests.support.command import Ran, mitosis
from tests.support.program import MITOSIS, clean_environment

pytestmark = pytest.mark.usefixtures("no_stack_here")


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


def by_itself(shell: str, **more: str) -> dict[str, dict[str, str]]:
    """The checks of a doctor that a shell starts in circumstances of its own."""
    line = f"{shell}; {shlex.join([*MITOSIS, 'doctor', '--json'])}"
    ran = subprocess.run(
        ["sh", "-c", line],
        capture_output=True,
        text=True,
        check=False,
        env=clean_environment(**more),
    )
    return {one["name"]: one for one in json.loads(ran.stdout)["checks"]}


@pytest.mark.spec("S000-135")
def test_too_few_open_files_for_one_worker_a_core(tmp_path: Path) -> None:
    found = by_itself("ulimit -n 90", MITOSIS_DATA_DIR=str(tmp_path / "data"))["file limit"]
    assert (found["state"], found["found"][:13]) == ("fail", "90 open files")
    assert "LimitNOFILE" in found["advice"]
    found = by_itself("ulimit -n 3000", MITOSIS_DATA_DIR=str(tmp_path / "data"))["file limit"]
    assert found["state"] == "warn"


def test_a_data_folder_that_is_not_ours(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir(mode=0o700)
    if os.geteuid() == 0:
        os.chown(folder, 65534, 65534)
        expected = "belongs to user 65534"
    else:
        folder.chmod(0)
        expected = "cannot be read or written"
    found = check("data folder")
    folder.chmod(0o700)
    assert found["state"] == "fail"
    assert expected in found["found"]
    assert found["advice"]


def test_a_disk_that_is_too_full_for_the_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MITOSIS_AGENT__MIN_FREE_BYTES", str(10**18))
    found = check("free space")
    assert found["state"] == "fail"
    assert "the agent claims no task below" in found["found"]
    assert "MITOSIS_AGENT__MIN_FREE_BYTES" in found["advice"]


def test_no_folder_for_temporary_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    assert check("temporary folder")["found"] == str(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: ["/no/such"])
    found = check("temporary folder")
    assert (found["state"], found["advice"][:10]) == ("fail", "set TMPDIR")


def test_without_cgroups_out_of_memory_cannot_be_told(tmp_path: Path) -> None:
    found = _memory_events(tmp_path)
    assert found.state == "warn"
    assert "SIGKILL" in found.advice


def test_without_user_namespaces_root_is_told(tmp_path: Path) -> None:
    (tmp_path / "max").write_text("0\n")
    assert _user_namespaces(tmp_path / "max").state == "warn"
    assert _user_namespaces(tmp_path / "none").state == "warn"
    (tmp_path / "max").write_text("9\n")
    assert _user_namespaces(tmp_path / "max").state == "ok"


@contextmanager
def strange_api(ahead: float, ready: int = 200, status: str = "ok") -> Iterator[str]:
    """A server whose clock is off; it knows nobody."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            code = {"/health": 200, "/ready": ready}.get(self.path, 404)
            body = json.dumps({"status": status}).encode()
            self.send_response_only(code)
            self.send_header("Date", formatdate(time.time() + ahead, usegmt=True))
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    ("ahead", "state", "says"),
    [(0, "ok", "within 3 s"), (20, "warn", "s ahead of"), (-3600, "fail", "s behind")],
)
def test_a_server_whose_clock_is_off(
    monkeypatch: pytest.MonkeyPatch, ahead: float, state: str, says: str
) -> None:
    with strange_api(ahead) as url:
        monkeypatch.setenv("MITOSIS_API_URL", url)
        monkeypatch.setenv("MITOSIS_TOKEN", "x")
        ran = mitosis("doctor", "--json")
    checks = {one["name"]: one for one in ran.json["checks"]}
    assert checks["clock of API"]["state"] == state
    assert says in checks["clock of API"]["found"]
    assert checks["api"]["state"] == "fail"
    assert "is http://127.0.0.1" in checks["api"]["advice"]
    assert ran.status == ExitStatus.PROBLEM_FOUND


@pytest.mark.parametrize(
    ("ready", "status", "state"), [(503, "", "fail"), (200, "degraded", "warn"), (200, "ok", "ok")]
)
def test_an_api_that_does_not_reach_its_servers(
    monkeypatch: pytest.MonkeyPatch, ready: int, status: str, state: str
) -> None:
    with strange_api(0, ready, status) as url:
        monkeypatch.setenv("MITOSIS_API_URL", url)
        monkeypatch.setenv("MITOSIS_TOKEN", "x")
        assert check("api ready")["state"] == state


def test_an_address_at_which_nobody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MITOSIS_API_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("MITOSIS_TOKEN", "x")
    ran = mitosis("doctor", "--json")
    found = states(ran)
    assert found["api"] == "fail"
    assert "clock of API" not in found
    assert all(one["advice"] for one in ran.json["checks"] if one["state"] != "ok")


def test_the_clock_of_a_database_is_looked_at(
    monkeypatch: pytest.MonkeyPatch, database: str
) -> None:
    monkeypatch.setenv("MITOSIS_DATABASE_URL", database)
    found = states(mitosis("doctor", "--json"))
    assert (found["database"], found["clock of PostgreSQL"]) == ("ok", "ok")
    assert clock_check("PostgreSQL", -100.0).state == "fail"


@pytest.mark.parametrize("folder", [None, Path("/sys/fs/cgroup/pids/agent")])
def test_the_limit_of_processes_is_said(
    monkeypatch: pytest.MonkeyPatch, folder: Path | None
) -> None:
    monkeypatch.setattr("mitosis.worker.process_limit.pids_folder", lambda: folder)
    check = _process_limit()
    assert "processes and threads for each of" in check.found
    assert check.state == ("warn" if folder is None else "ok")
    assert ("Delegate=yes" in check.advice) is (folder is None)
