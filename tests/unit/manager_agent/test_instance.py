"""The mark of an instance: the same until the root folder is replaced or process 1 starts again."""

from pathlib import Path

import pytest

from manager_agent.instance import instance_mark


def test_the_mark_of_this_instance_does_not_change(tmp_path: Path) -> None:
    before = instance_mark()
    (tmp_path / "file").touch()
    assert instance_mark() == before
    assert "process 1 " in before


def test_a_root_that_was_replaced_has_another_mark(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    before = instance_mark(root)
    (root / "file").touch()
    root.chmod(0o700)
    assert instance_mark(root) == before
    root.rename(tmp_path / "old")
    root.mkdir()
    assert instance_mark(root) != before


def test_a_root_with_the_same_inode_has_another_mark(tmp_path: Path) -> None:
    root = tmp_path / "root"
    marks = set()
    for _ in range(3):  # the number of a removed folder is used again at once
        root.mkdir()
        marks.add(instance_mark(root))
        root.rmdir()
    assert len(marks) == 3


def test_a_process_1_that_started_again_makes_another_mark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marks = set()
    for started in (b"100", b"200"):
        fields = [b"S", *[b"0"] * 18, started]
        monkeypatch.setattr("manager_agent.instance.stat_fields", lambda _, known=fields: known)
        marks.add(instance_mark(tmp_path))
    assert len(marks) == 2
    monkeypatch.setattr("manager_agent.instance.stat_fields", lambda _: [])
    assert instance_mark(tmp_path).endswith("process 1 ")
