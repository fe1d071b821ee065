"""Every file that a user names or drops is bounded before it is parsed: a terabyte is refused at once."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from api import certificate
from mitosis.cli import account, input_files
from mitosis.cli.group import submit
from mitosis.cli.job import arguments
from mitosis.cli.run import sources
from mitosis.cli.simulate import command as simulate
from mitosis.cli.stack import whole_stack
from mitosis.client import finding
from mitosis.contracts import bounded_files
from mitosis.contracts.bounded_files import read_bounded
from mitosis.contracts.errors import MitosisError
from mitosis.embedded.data_folder import DataFolder
from mitosis.settings import load_settings
from mitosis.worker_service import task_files

TERABYTE = 2**40


def inputs(path: Path) -> object:
    with sources.open_file(path, "--from-json") as file:
        return sources.from_json(file)


READERS: dict[str, Callable[[Path], object]] = {
    "tasks.yaml": lambda path: task_files.read_task_files(path.parent),
    "job.yaml": arguments.read_job_file,
    "hook.json": lambda path: input_files.read_json_object(path, "--setup-file"),
    "commands": lambda path: submit._from_command_file(path, {}),
    "tasks.json": lambda path: submit._from_json_file(path, {}),
    "inputs.json": inputs,
    "workload": lambda path: simulate._workload(path, {}),
    "password": account.read_password,
    "token": finding.read_token,
    "config.toml": lambda path: load_settings({}, path),
    "connection.json": lambda path: finding.read_connection(path.parent),
    "signing-key": lambda path: whole_stack._signing_key(
        load_settings({"api.signing_key_file": path}).settings, DataFolder(path.parent)
    ),
    "certificate": lambda path: certificate._read(path, "api.tls_certificate"),
}


@pytest.mark.parametrize("name", READERS)
def test_a_file_is_refused_by_its_size_before_it_is_parsed(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (submit, sources, bounded_files):  # 256 MB would be read before the refusal
        monkeypatch.setattr(module, "MOST_TASKS_BYTES", 1_000_000)
    path = tmp_path / name
    path.touch()
    os.truncate(path, TERABYTE)
    before = time.process_time()
    with pytest.raises(MitosisError, match=r"more than [\d_,]+ bytes") as refused:
        READERS[name](path)
    assert str(path) in str(refused.value)
    assert time.process_time() - before < 2.0


def test_a_file_of_exactly_the_limit_is_read(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"abc")
    assert read_bounded(path, 3) == b"abc"
    with pytest.raises(OSError, match="it has more than 2 bytes"):
        read_bounded(path, 2)
