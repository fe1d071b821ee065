"""Checkpoints: which setup is done on this host."""

import json
from pathlib import Path
from uuid import UUID

import pytest

from manager_agent.checkpoint import Checkpoints, fingerprint
from mitosis.contracts.hook import HookSpec

GROUP = UUID(int=5)


SETUP = HookSpec(command=("make", "ready"))


@pytest.mark.spec("S000-143", "S000-93")
def test_a_checkpoint_holds_for_the_same_setup_on_the_same_boot_only(tmp_path: Path) -> None:
    here = Checkpoints(tmp_path / "c", "machine", "boot", "root 1")
    mark = fingerprint(GROUP, SETUP)
    assert not here.holds(GROUP, mark)
    here.write(GROUP, mark)
    assert here.holds(GROUP, mark)
    assert here.prepared() == [str(GROUP)]
    assert not here.holds(GROUP, fingerprint(GROUP, HookSpec(command=("make", "other"))))
    assert not here.holds(UUID(int=6), mark)
    for other in (
        ("machine", "next boot", "root 1"),
        ("clone", "boot", "root 1"),
        ("machine", "boot", "root 2"),
    ):
        elsewhere = Checkpoints(tmp_path / "c", *other)
        assert not elsewhere.holds(GROUP, mark)
        assert elsewhere.prepared() == []
    here.forget(GROUP)
    assert not here.holds(GROUP, mark)


def test_a_broken_checkpoint_counts_as_none(tmp_path: Path) -> None:
    here = Checkpoints(tmp_path, "machine", "boot", "root 1")
    (tmp_path / f"{GROUP}.json").write_bytes(b"{")
    assert not here.holds(GROUP, fingerprint(GROUP, None))
    assert here.prepared() == []


def test_a_checkpoint_of_an_agent_that_knew_no_instances_stays_valid(tmp_path: Path) -> None:
    here = Checkpoints(tmp_path, "machine", "boot", "root 1")
    here.write(GROUP, "mark")
    path = tmp_path / f"{GROUP}.json"
    facts = json.loads(path.read_bytes())
    del facts["instance"]
    path.write_text(json.dumps(facts))
    assert here.holds(GROUP, "mark")
