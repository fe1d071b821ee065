"""A scratch folder is whole and empty before each task, whatever the task before did to it."""

import contextlib
import os
import time
import unittest.mock
from collections.abc import Callable
from pathlib import Path

import pytest

from mitosis.worker import scratch as worker_scratch
from mitosis.worker.scratch import ScratchFolder
from tests.support.waiting import wait_until


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


def _remembered(scratch: ScratchFolder) -> None:
    """Wait until the folder is known to be clean: its last change is long enough ago."""

    def looked() -> bool:
        with unittest.mock.patch.object(os, "scandir", wraps=os.scandir) as lists:
            scratch.ensure()
        return not lists.called

    wait_until(looked)


def _hidden_by_its_times(folder: Path) -> None:
    before = folder.stat()
    (folder / "left").write_text("x")
    os.utime(folder, ns=(before.st_atime_ns, before.st_mtime_ns))


def _closed_and_empty(folder: Path) -> None:
    folder.chmod(0)


@pytest.mark.parametrize(
    "vandal",
    [_files, _locked, _gone, _replaced_by_a_link, _closed, _closed_and_empty, _hidden_by_its_times],
)
def test_a_folder_that_is_known_to_be_clean_is_whole_and_empty_again(
    tmp_path: Path, vandal: Callable[[Path], None]
) -> None:
    (tmp_path / "precious").mkdir()
    scratch = ScratchFolder(tmp_path / "slot-0")
    _remembered(scratch)
    vandal(tmp_path / "slot-0")
    scratch.ensure()
    assert list((tmp_path / "slot-0").iterdir()) == []
    assert (tmp_path / "slot-0").lstat().st_mode & 0o7777 == 0o700
    _remembered(scratch)


@pytest.mark.parametrize(("seconds", "grain_ns"), [(7.25, 20_000_000), (7, 2_000_000_000)])
@pytest.mark.parametrize("ticks", [0, 1, 2])
def test_a_file_made_within_one_tick_of_the_clock_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float, grain_ns: int, ticks: int
) -> None:
    """The clock of change times stands still, as within one tick; it may stand for the whole grain."""
    changed = int(seconds * 1_000_000_000)
    monkeypatch.setattr(ScratchFolder, "_state", lambda _: (1, changed))
    monkeypatch.setattr(worker_scratch, "_kernel_now", lambda: changed + ticks * grain_ns // 2)
    (tmp_path / "slot-0").mkdir()
    scratch = ScratchFolder(tmp_path / "slot-0")
    scratch.ensure()
    (tmp_path / "slot-0" / "left").write_text("x")
    scratch.ensure()
    assert list((tmp_path / "slot-0").iterdir()) == []


def test_a_file_made_after_the_list_was_read_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a process that an earlier task left behind."""
    scratch = ScratchFolder(tmp_path / "slot-0")
    scratch.ensure()
    later = time.time_ns() + 10_000_000_000

    def list_and_fill(path: str) -> contextlib.AbstractContextManager[object]:
        monkeypatch.undo()
        found = list(os.scandir(path))
        (tmp_path / "slot-0" / "left").write_text("x")
        monkeypatch.setattr(worker_scratch, "_kernel_now", lambda: later)
        return contextlib.nullcontext(found)

    monkeypatch.setattr(os, "scandir", list_and_fill)
    scratch.ensure()
    scratch.ensure()
    assert list((tmp_path / "slot-0").iterdir()) == []
