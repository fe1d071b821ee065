"""A pids cgroup that is full for a while: no process can be made in it, whoever asks."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mitosis.worker.process_limit import pids_folder


class FullHost:
    """The group of one worker, which stands for its host."""

    def __init__(self, pid: int) -> None:
        parent = pids_folder()
        assert parent is not None
        group = _pids_group(pid)
        self._folder = next(
            p for p in (parent / Path(group).name, parent / group[1:]) if p.exists()
        )
        self._most = (self._folder / "pids.max").read_text()

    def fill(self) -> None:
        (self._folder / "pids.max").write_text("1")

    def free(self) -> None:
        (self._folder / "pids.max").write_text(self._most)

    @property
    def refused(self) -> int:
        """How often the kernel has refused a process."""
        return int((self._folder / "pids.events").read_text().split()[1])


def _pids_group(pid: int) -> str:
    lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    return next(
        path
        for _, controllers, path in (line.split(":", 2) for line in lines)
        if controllers == "" or "pids" in controllers.split(",")
    )


@contextmanager
def full_group(pid: int) -> Iterator[Path]:
    """A group of its own for one process, which can make no other; yields its folder."""
    parent = pids_folder()
    assert parent is not None
    folder, before = parent / f"mitosis-test-{os.getpid()}-{pid}", parent / _pids_group(pid)[1:]
    folder.mkdir()
    try:
        (folder / "pids.max").write_text("1")
        (folder / "cgroup.procs").write_text(str(pid))
        yield folder
    finally:
        home = before if before.exists() else parent
        for process in (folder / "cgroup.procs").read_text().split():
            (home / "cgroup.procs").write_text(process)
        folder.rmdir()
