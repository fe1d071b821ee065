"""A pids cgroup that is full for a while: no process can be made in it, whoever asks."""

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
