"""What an agent says of its host."""

import os
from pathlib import Path

import pytest

from manager_agent.hello import hello
from mitosis.contracts.attempt import AttemptKey
from mitosis.execution.identity import boot_id, machine_id


def test_hello_says_where_it_runs(tmp_path: Path) -> None:
    said = hello(tmp_path, 3, take_over=True)
    assert said.incarnation == 3
    assert said.take_over
    assert said.machine_id == machine_id(tmp_path)
    assert said.boot_id == boot_id() != "unknown"
    assert said.cores == tuple(sorted(os.sched_getaffinity(0)))


def test_a_host_with_very_many_workers_can_say_hello(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has begun up to 128 attempts that are named; a hello has room for so many of all of them."""
    monkeypatch.setattr("manager_agent.hello.MAX_ATTEMPTS_LISTED", 100)
    begun = {AttemptKey(n, 1) for n in range(101)}
    named = hello(tmp_path, 3, begun=begun).begun.keys()
    assert named == sorted(begun)[1:]
