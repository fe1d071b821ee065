"""Checks of this host: programs, kernel, limits, cores, folders, ports. They change and create nothing."""

import os
import resource
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from mitosis.cli.connection import StackConnection, data_dir_of, read_connection
from mitosis.cli.doctor.check import Check, fail, ok, warn
from mitosis.contracts.allocation import DESCRIPTORS_OF_AGENT, DESCRIPTORS_PER_WORKER
from mitosis.contracts.errors import ConfigurationError, MitosisError
from mitosis.settings import Settings

WANTED_FILES = 4096
"""1,000 workers of an agent need 3 files each, and the agent needs 100."""
WANTED_FREE_BYTES = 1 << 30
CGROUPS = Path("/sys/fs/cgroup")


def host_checks(settings: Settings) -> Iterator[Check]:
    """Run the checks of this host, one after the other."""
    yield ok("python", f"{sys.version.split()[0]} at {sys.executable}")
    yield from _programs(settings)
    yield _process_handles()
    yield _memory_events()
    yield _process_limit()
    if settings.database.url is None and os.geteuid() == 0:
        yield _user_namespaces()
    yield _file_limit()
    yield _cores()
    yield _enforced_cores()
    data_dir = data_dir_of(settings)
    yield _data_folder(data_dir)
    yield _free_space(data_dir, settings.agent.min_free_bytes)
    yield _socket_folder(settings, data_dir)
    yield _temporary_folder()
    if stack_here(data_dir) is None:
        yield from _ports(settings)


def stack_here(data_dir: Path) -> StackConnection | None:
    """Return the stack that runs on this data folder; None also if the folder cannot be read."""
    try:
        return read_connection(data_dir)
    except ConfigurationError:
        return None


def _programs(settings: Settings) -> Iterator[Check]:
    from mitosis.embedded.postgres import find_postgres_bin
    from mitosis.embedded.privileges import find_privileges
    from mitosis.embedded.temporal_program import find_temporal_binary

    if settings.database.url is None:
        yield _try("postgresql", lambda: str(find_postgres_bin()))
        yield _try("postgresql user", lambda: find_privileges().description)
    if settings.temporal.address is None:
        yield _try("temporal", lambda: str(find_temporal_binary()))
    if shutil.which("setpriv"):
        yield ok("setpriv", str(shutil.which("setpriv")))
    else:
        yield fail("setpriv", "not found", "install util-linux")


def _try(name: str, find: Callable[[], str]) -> Check:
    """Return what ``find`` finds; an error gives the problem, and after a colon the advice."""
    try:
        return ok(name, find())
    except MitosisError as error:
        found, _, advice = error.message.partition(": ")
        return fail(name, found, advice)


def _process_handles() -> Check:
    """Check the process handles that agent and workers use. Source: pidfd_open(2), Linux 5.3."""
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError as error:
        found = f"Linux {os.uname().release}: pidfd_open: {error.strerror}"
        return fail("kernel", found, "use Linux 5.3 or newer, and a sandbox that allows pidfd_open")
    return ok("kernel", f"Linux {os.uname().release}")


def _memory_events(root: Path = CGROUPS) -> Check:
    """Check the memory events that distinguish an out-of-memory kill from any other SIGKILL."""
    name = "cgroups"
    advice = (
        "out of memory is shown as SIGKILL; mount cgroup2 at /sys/fs/cgroup to distinguish them"
    )
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError as error:
        return warn(name, f"/proc/self/cgroup: {error.strerror}", advice)
    for line in lines:
        _, controllers, path = line.split(":", 2)
        inner = path.lstrip("/")
        if controllers == "" and (root / inner / "memory.events").exists():
            return ok(name, f"version 2, {path}")
        if "memory" in controllers.split(","):
            places = (root / "memory" / inner, root / "memory")
            if any((place / "memory.oom_control").exists() for place in places):
                return ok(name, f"version 1, {path}")
    return warn(name, "the memory events of this process cannot be read", advice)


def _process_limit() -> Check:
    """Check what bounds the processes of a task: the kernel, or the count of its worker."""
    from mitosis.worker.process_limit import default_limit, pids_folder

    name = "process limit"
    workers = len(os.sched_getaffinity(0))
    found = f"{default_limit(workers):,} processes and threads for each of {workers} workers"
    if (folder := pids_folder()) is not None:
        return ok(name, f"{found}, by cgroups in {folder}")
    advice = (
        "workers count their processes four times a second; to let the kernel do it, give the agent a"
        " writable pids cgroup (systemd: Delegate=yes, DelegateSubgroup=agent)"
    )
    return warn(name, f"{found}, no pids cgroup can be made", advice)


def _user_namespaces(limit: Path = Path("/proc/sys/user/max_user_namespaces")) -> Check:
    """Check user namespaces: for root, PostgreSQL runs in one, or as a system user. Source: namespaces(7)."""
    try:
        allowed = int(limit.read_text())
    except (OSError, ValueError):
        allowed = 0
    if allowed:
        return ok("namespaces", f"{allowed} user namespaces allowed")
    advice = (
        "PostgreSQL then runs as a system user; allow them: sysctl user.max_user_namespaces=10000"
    )
    return warn("namespaces", "user namespaces are off", advice)


def _file_limit() -> Check:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    found = f"{soft} open files, can be raised to {hard}"
    needed = DESCRIPTORS_OF_AGENT + DESCRIPTORS_PER_WORKER * len(os.sched_getaffinity(0))
    if hard != resource.RLIM_INFINITY and hard < needed:
        advice = f"raise the hard limit to {WANTED_FILES} (ulimit -Hn, LimitNOFILE of the service)"
        return fail("file limit", f"{found}; one worker per core needs {needed}", advice)
    if hard != resource.RLIM_INFINITY and hard < WANTED_FILES:
        return warn("file limit", found, f"raise the hard limit to {WANTED_FILES} (ulimit -Hn)")
    return ok("file limit", found)


def _cores() -> Check:
    mine, all_cores = sorted(os.sched_getaffinity(0)), os.cpu_count() or 0
    found = f"{len(mine)} of {all_cores}: {', '.join(map(str, mine))}"
    if len(mine) < all_cores:
        return warn("cores", found, "tasks can only use these cores (taskset, cpuset or container)")
    return ok("cores", found)


def _enforced_cores() -> Check:
    """Say whether a plan with use_cgroups works here; without it, cores are pinned by affinity."""
    from mitosis.worker.cpuset import refusal

    if why := refusal():
        return ok(
            "enforced cores", f"no: {why}; pins by affinity work, plans with use_cgroups do not"
        )
    return ok("enforced cores", "cpuset cgroups can be made (use_cgroups)")


def _data_folder(path: Path) -> Check:
    name = "data folder"
    try:
        found = path.lstat()
    except FileNotFoundError:
        return _new_folder(name, path)
    except OSError as error:
        return fail(name, f"{path}: {error.strerror}", "choose another with MITOSIS_DATA_DIR")
    if not stat.S_ISDIR(found.st_mode):
        return fail(name, f"{path} is not a folder", "remove it or set MITOSIS_DATA_DIR")
    return _rights(name, path, found)


def _rights(name: str, path: Path, found: os.stat_result) -> Check:
    if found.st_uid != os.geteuid():
        return fail(
            name,
            f"{path} belongs to user {found.st_uid}",
            "run as that user or set MITOSIS_DATA_DIR",
        )
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        return fail(name, f"{path} cannot be read or written", f"chmod 700 {path}")
    if mode := stat.S_IMODE(found.st_mode) & 0o077:
        return warn(name, f"{path} is accessible to others ({mode:03o})", f"chmod 700 {path}")
    return ok(name, str(path))


def _new_folder(name: str, path: Path) -> Check:
    above = next(folder for folder in path.parents if folder.exists())
    if os.access(above, os.W_OK | os.X_OK):
        return ok(name, f"{path}, created at the first start")
    return fail(name, f"{above} is not writable", "choose another with MITOSIS_DATA_DIR")


def _free_space(data_dir: Path, needed: int) -> Check:
    folder = next(one for one in (data_dir, *data_dir.parents) if one.exists())
    free = shutil.disk_usage(folder).free
    found = f"{free / 1e9:.1f} GB at {folder}"
    advice = "free some space, or set MITOSIS_DATA_DIR to another disk"
    if free < needed:
        more = f"{found}; the agent claims no task below {needed / 1e9:.1f} GB"
        return fail("free space", more, f"{advice} (the limit is MITOSIS_AGENT__MIN_FREE_BYTES)")
    if free < WANTED_FREE_BYTES:
        return warn("free space", found, advice)
    return ok("free space", found)


def _temporary_folder() -> Check:
    name = "temporary folder"
    try:
        folder = tempfile.gettempdir()
    except FileNotFoundError as error:
        return fail(name, str(error), "set TMPDIR to a writable folder")
    return ok(name, folder)


def _socket_folder(settings: Settings, data_dir: Path) -> Check:
    from mitosis.embedded.data_folder import default_run_dir
    from mitosis.embedded.postgres import server_socket

    folder = settings.run_dir or default_run_dir(data_dir)
    return _try("socket folder", lambda: str(server_socket(folder).parent))


def _ports(settings: Settings) -> Iterator[Check]:
    """Check the configured ports; only while no stack runs on the data folder."""
    from mitosis.embedded.data_folder import port_is_free

    wanted = {
        "MITOSIS_API__PORT": settings.api.port,
        "MITOSIS_TEMPORAL__PORT": settings.temporal.port,
        "MITOSIS_TEMPORAL__UI_PORT": settings.temporal.ui_port,
    }
    for setting, port in wanted.items():
        if port is None:
            continue
        if port_is_free(port):
            yield ok(f"port {port}", "free")
        else:
            advice = f"stop the program that uses it, or set {setting} to a free port"
            yield fail(f"port {port}", "taken", advice)
