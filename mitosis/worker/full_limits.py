"""Names the limit of processes that is reached, where the kernel refuses one with EAGAIN.

Sources: fork(2), getrlimit(2), cgroups(7), the kernel's cgroup-v1/pids.rst and cgroup-v2.rst.
"""

import resource
from collections.abc import Iterator
from pathlib import Path

from mitosis.worker.process_limit import CGROUPS, number_in

_KERNEL = ("pid_max", "threads-max")


def full_limit(cgroup: str | None = None, root: Path = CGROUPS) -> str:
    """Return which limit is reached; where none is any more, those that are left.

    Args:
        cgroup: content of ``/proc/self/cgroup``; None = read it.
        root: where the cgroup file systems are mounted.
    """
    for name, folder in _groups(cgroup, root):
        most, now = number_in(folder / "pids.max"), number_in(folder / "pids.current")
        if most is not None and now is not None and now >= most:
            return f"the pids cgroup {name} has {now} of {most} processes and threads"
    soft, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    if soft != resource.RLIM_INFINITY:
        return f"its user may have {soft} processes and threads (RLIMIT_NPROC)"
    limits = ((name, number_in(Path("/proc/sys/kernel", name))) for name in _KERNEL)
    return ", ".join(f"kernel.{name} is {limit}" for name, limit in limits)


def _groups(cgroup: str | None, root: Path) -> Iterator[tuple[str, Path]]:
    """Yield the pids cgroups of this process, the innermost first, each with its path."""
    try:
        lines = (cgroup or Path("/proc/self/cgroup").read_text()).splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "pids" not in controllers.split(","):
            continue
        top = root / "pids" if controllers else root
        for inner in (Path(path), *Path(path).parents):
            yield str(inner), top / str(inner).lstrip("/")
