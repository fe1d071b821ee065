"""Cpuset cgroups: cores that a worker and all that it starts cannot leave. Source: cpuset(7), cgroups(7).

One cgroup for each worker slot, below that of the agent. cgroup v1 needs a writable ``cpuset`` hierarchy;
v2 needs the controller enabled for children of the agent's own cgroup.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")


class CpusetError(OSError):
    """No cpuset cgroup can be made here."""


def parent_cgroup(membership: str | None = None, root: Path = ROOT) -> Path:
    """Return the cgroup of this process in the hierarchy that has the cpuset controller.

    Args:
        membership: content of ``/proc/self/cgroup``; None = read it.
        root: where the cgroup file systems are mounted.

    Raises:
        CpusetError: there is none, or its children cannot have a cpuset.
    """
    text = Path("/proc/self/cgroup").read_text() if membership is None else membership
    unified = None
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        if "cpuset" in controllers.split(","):
            return _writable(root / "cpuset", path)
        if not controllers:
            unified = path
    if unified is None:
        raise CpusetError("this kernel offers no cpuset controller")
    folder = _writable(root, unified)
    with suppress(OSError):
        if "cpuset" in (folder / "cgroup.subtree_control").read_text().split():
            return folder
    raise CpusetError(f"the cpuset controller is not delegated to {folder}")


def _writable(hierarchy: Path, path: str) -> Path:
    """Return the folder of a cgroup; the root of the hierarchy inside a cgroup namespace."""
    for folder in (hierarchy / path.lstrip("/"), hierarchy):
        if (folder / "cgroup.procs").exists():
            if os.access(folder, os.W_OK) and os.access(folder / "cgroup.procs", os.W_OK):
                return folder
            raise CpusetError(f"no permission to make cgroups in {folder}")
    raise CpusetError(f"{hierarchy} is not mounted")


def refusal() -> str | None:
    """Return why cores cannot be enforced on this host; None: they can."""
    try:
        parent_cgroup()
    except OSError as error:
        return str(error)
    return None


@contextmanager
def inside(name: str, cpus: Sequence[int]) -> Iterator[None]:
    """Move this process into the cgroup ``name`` with these cores while the block runs.

    Processes that it starts stay there.

    Raises:
        OSError: the cgroup cannot be made or entered.
    """
    parent = parent_cgroup()
    folder = parent / name
    with suppress(FileExistsError):
        folder.mkdir()
    if (
        memory := parent / "cpuset.mems"
    ).exists():  # v1: empty at first, and then nothing can enter
        (folder / "cpuset.mems").write_text(memory.read_text())
    (folder / "cpuset.cpus").write_text(",".join(map(str, cpus)))
    (folder / "cgroup.procs").write_text("0")
    try:
        yield
    finally:
        (parent / "cgroup.procs").write_text("0")


def remove(prefix: str) -> None:
    """Remove the cgroups whose name begins so; those with processes stay."""
    with suppress(OSError):
        for folder in parent_cgroup().glob(f"{prefix}*"):
            with suppress(OSError):
                folder.rmdir()
