"""A scratch folder is whole and empty before each task, whatever the task before did to it."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from mitosis.worker.scratch import ScratchFolder


def _files(folder: Path) -> None:
    (folder / "a" / "b").mkdir(parents=True)
    (folder / "a" / "b" / "file").write_text("x")
    (folder / "link").symlink_to("/etc")


def _locked(folder: Path) -> None:
    _files(folder)
    (folder / "a" / "b").chmod(0)
    (folder / "a").chmod(0o500)


def _gone(folder: Path) -> None:
    folder.rmdir()


def _replaced_by_a_link(folder: Path) -> None:
    folder.rmdir()
    folder.symlink_to(folder.parent / "precious")


def _replaced_by_a_file(folder: Path) -> None:
    folder.rmdir()
    folder.write_text("x")


def _closed(folder: Path) -> None:
    (folder / "x").write_text("x")
    folder.chmod(0)


@pytest.mark.parametrize(
    "vandal", [_files, _locked, _gone, _replaced_by_a_link, _replaced_by_a_file, _closed]
)
def test_it_is_whole_and_empty_again(tmp_path: Path, vandal: Callable[[Path], None]) -> None:
    precious = tmp_path / "precious" / "file"
    precious.parent.mkdir()
    precious.write_text("keep me")
    scratch = ScratchFolder(tmp_path / "slot-0")
    scratch.ensure()

    vandal(tmp_path / "slot-0")
    scratch.ensure()

    folder = tmp_path / "slot-0"
    assert folder.is_dir()
    assert not folder.is_symlink()
    assert list(folder.iterdir()) == []
    assert folder.stat().st_mode & 0o777 == 0o700
    assert precious.read_text() == "keep me"


def test_a_file_made_within_one_tick_of_the_clock_is_seen(tmp_path: Path) -> None:
    scratch = ScratchFolder(tmp_path / "slot-0")
    scratch.ensure()
    before = Path(scratch.path).lstat()
    Path(scratch.path, "left").write_text("x")
    os.utime(scratch.path, ns=(before.st_atime_ns, before.st_mtime_ns))  # a clock that stood still
    scratch.ensure()
    assert list(Path(scratch.path).iterdir()) == []
