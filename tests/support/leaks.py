"""What handlers can leave behind in a worker, one function each, and a probe that sees all of it."""

import contextvars
import ctypes
import decimal
import faulthandler
import fcntl
import gc
import locale
import os
import platform
import resource
import signal
import socket
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from io import TextIOWrapper
from pathlib import Path
from typing import Any, cast

from mitosis.worker import process_state

_libc = ctypes.CDLL(None)
_signal_of_import = signal.signal
"""As ``from signal import signal`` of a module that the zygote has imported."""
_VARIABLE = contextvars.ContextVar("variable", default="clean")


def _soft_limit(number: int, value: int) -> None:
    """Lower a limit, but never above what another leak has left: only root may raise a hard one."""
    hard = resource.getrlimit(number)[1]
    resource.setrlimit(number, (value if hard < 0 else min(value, hard), hard))


def _c_limit(number: int, value: int) -> None:
    """As C code does it: no function of Python is called."""
    pair = (ctypes.c_uint64 * 2)(value, resource.getrlimit(number)[1])
    assert _libc.setrlimit(number, pair) == 0
    time.sleep(0.002)


def _prctl(option: int, value: int) -> None:
    """Set a process attribute in a task that is not of the shortest."""
    assert _libc.prctl(option, value, 0, 0, 0) == 0
    time.sleep(0.002)


PRCTL = {  # Source: the kernel's uapi header of prctl(2)
    "kept capabilities": (7, 8, 1),
    "rights of root": (27, 28, 1),
    "huge pages": (42, 41, 1),
    "poisoned memory": (34, 33, 1),
    "code in memory": (66, 65, 1),
    "merged memory": (68, 67, 1),
}
"""Process attributes: what reads one, what sets it, and another value than the usual."""
UNKNOWN = {name for name, (get, _, _) in PRCTL.items() if _libc.prctl(get, 0, 0, 0, 0) == -1}
"""Those that this kernel does not have."""
_NUMBERS = {  # Source: syscalls(2)
    "x86_64": {"ioprio_set": 251, "ioprio_get": 252, "set_mempolicy": 238, "get_mempolicy": 239},
    "aarch64": {"ioprio_set": 30, "ioprio_get": 31, "set_mempolicy": 237, "get_mempolicy": 236},
}
"""Of system calls without a function in the C library."""


def _system_call(name: str, *arguments: Any) -> int:
    result: int = _libc.syscall(_NUMBERS[platform.machine()][name], *arguments)
    assert result != -1, name
    return result


def _set_policy(name: str, *arguments: Any) -> None:
    """Set a policy, in a task that is not of the shortest."""
    _system_call(name, *arguments)
    time.sleep(0.002)


def _core_filter() -> None:
    Path("/proc/self/coredump_filter").write_text("0")
    time.sleep(0.002)


def _policy() -> None:
    os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    time.sleep(0.002)


def _oom_score() -> None:
    Path("/proc/self/oom_score_adj").write_text("500")
    time.sleep(0.002)


def _open_files() -> None:
    for _ in range(150):
        os.open("/dev/null", os.O_RDONLY)


def _personality(flags: int) -> None:
    """Set it in a task that is not of the shortest; a container may forbid it."""
    _libc.personality(flags)
    time.sleep(0.02)


def _zone(name: str) -> None:
    os.environ["TZ"] = name
    time.tzset()


def _unshare(flag: int) -> None:
    """Return after a moment: a task of less than a millisecond is not looked at for this."""
    assert _libc.unshare(flag) == 0
    time.sleep(0.002)


def _posix_timer() -> None:
    """Have the kernel send a signal in ten minutes. Source: timer_create(2)."""
    event = (ctypes.c_int * 16)(
        0, 0, signal.SIGUSR2
    )  # its third word is the signal, the fourth SIGEV_SIGNAL
    number, times = ctypes.c_void_p(), (ctypes.c_long * 4)(0, 0, 600, 0)
    assert _libc.timer_create(time.CLOCK_MONOTONIC, event, ctypes.byref(number)) == 0
    assert _libc.timer_settime(number, 0, times, None) == 0
    time.sleep(0.002)


def _rounding(mode: int) -> None:
    """Round as ``fesetround`` of C code says. Source: fenv(3)."""
    assert _libc.fesetround(mode) == 0
    time.sleep(0.002)


def _no_append(fd: int) -> None:
    """As who clears O_NONBLOCK without looking at the other flags."""
    fcntl.fcntl(fd, fcntl.F_SETFL, 0)
    with suppress(OSError):  # /dev/full, by another leak
        os.write(fd, b"x")


def _no_importer(path: str) -> Any:
    raise ImportError(path)


def _stuck_thread() -> None:
    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()


def _replace_fd(fd: int) -> None:
    file = os.open("/dev/full", os.O_RDWR)
    os.dup2(file, fd)
    os.close(file)


def _in_c(name: bytes, value: bytes) -> None:
    _libc.setenv(name, value, 1)


def _other_environment() -> None:
    os.environ = {"ONLY": "this"}  # type: ignore[assignment] # noqa: B003 - that is the point


def _blocked_signals() -> None:
    numbers = {signal.SIGUSR2, signal.SIGINT, signal.SIGRTMIN}
    signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    for number in numbers:
        os.kill(os.getpid(), number)


def _all_files(count: int) -> None:
    count = min(count, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    resource.setrlimit(resource.RLIMIT_NOFILE, (count, count))


def _all_closed() -> None:
    """Close what the worker needs, when its last message has left it."""
    time.sleep(0.02)
    os.closerange(3, 1000)


def _all_replaced() -> None:
    _all_closed()
    for _ in range(150):
        os.open("/dev/null", os.O_RDWR)


def _all_closed_for_long() -> None:
    """Return after some ticks of the worker, which has nothing left to reach its agent with."""
    _all_closed()
    time.sleep(0.15)


LEAKS: dict[str, Callable[[], Any]] = {
    "variable": lambda: os.environ.update(LEAK="1"),
    "no PATH": lambda: os.environ.pop("PATH", None),
    "putenv": lambda: os.putenv("LEAK_IN_C", "1"),
    "setenv": lambda: _in_c(b"LEAK_OF_LIBRARY", b"1"),
    "unsetenv": lambda: _libc.unsetenv(b"HOME"),
    "clearenv": _libc.clearenv,
    "no environment": lambda: os.environ.clear(),  # noqa: PLW0108 - the mapping of then
    "another environment": _other_environment,
    "overwritten": lambda: os.environ.update(PATH="/nowhere"),
    "folder": lambda: os.chdir("/usr"),
    "umask": lambda: os.umask(0o777),
    "ignored": lambda: signal.signal(signal.SIGUSR1, signal.SIG_IGN),
    "kept function": lambda: _signal_of_import(signal.SIGUSR2, signal.SIG_IGN),
    "handler": lambda: signal.signal(signal.SIGTERM, lambda *_: None),
    "real-time handler": lambda: signal.signal(signal.SIGRTMIN + 3, signal.SIG_IGN),
    "alarm": lambda: signal.signal(signal.SIGALRM, lambda *_: None),
    "children": lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN),
    "mask": lambda: signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM, signal.SIGTERM}),
    "timer": lambda: signal.setitimer(signal.ITIMER_PROF, 600),
    "real timer": lambda: signal.setitimer(signal.ITIMER_REAL, 600),
    "files": lambda: _soft_limit(resource.RLIMIT_NOFILE, 64),
    "core": lambda: _soft_limit(resource.RLIMIT_CORE, 0),
    "stack": lambda: _soft_limit(resource.RLIMIT_STACK, 1 << 20),
    "hard limit": lambda: resource.setrlimit(resource.RLIMIT_MSGQUEUE, (1000, 1000)),
    "limit by C": lambda: _c_limit(resource.RLIMIT_FSIZE, 1 << 20),
    "nice": lambda: os.nice(3),
    "cores": lambda: os.sched_setaffinity(0, {max(os.sched_getaffinity(0))}),
    "locale": lambda: locale.setlocale(locale.LC_ALL, "C.UTF-8"),
    "time zone": lambda: _zone("Asia/Tokyo"),
    "thread": _stuck_thread,
    "stdin": lambda: _replace_fd(0),
    "stdout": lambda: _replace_fd(1),
    "closed": lambda: os.close(2),
    "python streams": lambda: sys.stdout.close(),  # noqa: PLW0108 - the stream of then
    "no stdin": lambda: setattr(sys, "stdin", None),
    "no collection": lambda: gc.disable(),  # noqa: PLW0108 - the function of then
    "recursion": lambda: sys.setrecursionlimit(5000),
    "trace": lambda: sys.settrace(lambda *_: None),
    "socket timeout": lambda: socket.setdefaulttimeout(3.0),
    "switch interval": lambda: sys.setswitchinterval(0.5),
    "clock": lambda: setattr(time, "time", lambda: 0.0),
    "open files": _open_files,
    "policy": _policy,
    "oom score": _oom_score,
    "death signal": lambda: _prctl(1, signal.SIGKILL),
    "dumpable": lambda: _prctl(4, 0),
    "timer slack": lambda: _prctl(29, 1_000_000),
    "subreaper": lambda: _prctl(36, 0),
    **{name: partial(_prctl, *numbers) for name, (_, *numbers) in PRCTL.items()},
    "filter of cores": _core_filter,
    "I/O priority": lambda: _set_policy("ioprio_set", 1, 0, 3 << 13),
    "memory policy": lambda: _set_policy("set_mempolicy", 4, None, 0),
    "digits": lambda: sys.set_int_max_str_digits(0),
    "exception hook": lambda: setattr(sys, "excepthook", print),
    "unraisable hook": lambda: setattr(sys, "unraisablehook", print),
    "precision": lambda: setattr(decimal.getcontext(), "prec", 5),
    "context variable": lambda: _VARIABLE.set("left"),
    "policy of a short task": lambda: os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0)),
    "pending": _blocked_signals,
    "closed all": _all_closed,
    "closed all for long": _all_closed_for_long,
    "replaced all": _all_replaced,
    "16 files": lambda: _all_files(16),
    "3 files": lambda: _all_files(3),
    "text of streams": lambda: cast(TextIOWrapper, sys.stdout).reconfigure(encoding="ascii"),
    "thread hook": lambda: setattr(threading, "excepthook", print),
    "argument": lambda: sys.argv.append("left"),
    "other arguments": lambda: setattr(sys, "argv", ["other"]),
    "import hook": lambda: sys.path_hooks.append(_no_importer),
    "generator hook": lambda: sys.set_asyncgen_hooks(firstiter=print),
    "coroutine origins": lambda: sys.set_coroutine_origin_tracking_depth(3),
    "stack of threads": lambda: threading.stack_size(1 << 20),
    "debug of collections": lambda: gc.set_debug(gc.DEBUG_STATS),
    "trace of threads": lambda: threading.settrace(lambda *_: None),
    "profile of threads": lambda: threading.setprofile(lambda *_: None),
    "trace of memory": lambda: tracemalloc.start(),  # noqa: PLW0108 - the function of then
    "bytecode": lambda: setattr(sys, "dont_write_bytecode", not sys.dont_write_bytecode),
    "default precision": lambda: setattr(decimal.DefaultContext, "prec", 3),
    "default traps": lambda: decimal.DefaultContext.clear_traps(),  # noqa: PLW0108 - as the others
    "no traceback of crashes": lambda: faulthandler.disable(),  # noqa: PLW0108 - the function of then
    "flags of dlopen": lambda: sys.setdlopenflags(os.RTLD_NOW | os.RTLD_GLOBAL),
    "kernel timer": _posix_timer,
    "rounding": lambda: _rounding(0x800 if platform.machine() == "x86_64" else 0x400000),
    "overwriting output": lambda: _no_append(1),
    "no tracebacks": lambda: setattr(sys, "tracebacklimit", 0),
    "folder of bytecode": lambda: setattr(sys, "pycache_prefix", "/nowhere"),
    "debugger": lambda: setattr(sys, "breakpointhook", print),
    "no first streams": lambda: setattr(sys, "__stdout__", None),
    "addresses": lambda: _personality(0x0040000),  # Source: personality(2), ADDR_NO_RANDOMIZE
}
NAMESPACES = {  # Source: the kernel's uapi header of clone(2)
    "mounts": 0x00020000,
    "host name": 0x04000000,
    "semaphores": 0x08000000,
    "cgroups": 0x02000000,
    "clocks of children": 0x00000080,
    "processes of children": 0x20000000,
    "network": 0x40000000,
}
for name, flag in NAMESPACES.items():
    LEAKS[name] = partial(_unshare, flag)


def leak(names: list[str]) -> int:
    """Leave all of these; return the pid."""
    for name in names:
        LEAKS[name]()
    return os.getpid()


def probe() -> dict[str, Any]:
    """Everything that :data:`LEAKS` can change, as JSON; the same in every clean worker."""
    os.umask(mask := os.umask(0))
    status = open("/proc/self/status").read()  # noqa: SIM115, PTH123 - short and plain
    return {
        "environment": {k: v for k, v in os.environ.items() if not k.startswith("MITOSIS_TASK_")},
        "in C": _c_environment(),
        "folder": os.getcwd(),  # noqa: PTH109 - as above
        "umask": mask,
        "handlers": [
            str(signal.getsignal(n)).split(" at 0x")[0] for n in range(1, 65) if n not in (32, 33)
        ],
        "masks": [line for line in status.splitlines() if line[:6] in ("SigBlk", "SigIgn")],
        "timers": [signal.getitimer(timer) for timer in (1, 2)],
        "limits": {str(n): resource.getrlimit(n) for n in range(16)},
        "nice": os.getpriority(os.PRIO_PROCESS, 0),
        "cores": sorted(os.sched_getaffinity(0)),
        "locale": locale.setlocale(locale.LC_ALL),
        "zone": [*time.tzname, time.timezone],
        "threads": threading.active_count(),
        "null": os.fstat(0).st_rdev,
        "streams": [stream.writable() for stream in (sys.stdout, sys.stderr)],
        "stdin": sys.stdin is not None,
        "output": str(Path("/proc/self/fd/1").readlink())[:8],
        "gc": [gc.isenabled(), gc.get_debug()],
        "recursion": sys.getrecursionlimit(),
        "trace": [str(get()) for get in (sys.gettrace, threading.gettrace, threading.getprofile)],
        "trace of memory": tracemalloc.is_tracing(),
        **_settings(),
        "bytecode": sys.dont_write_bytecode,
        "crashes": faulthandler.is_enabled(),
        "dlopen": sys.getdlopenflags(),
        "personality": Path("/proc/self/personality").read_text(),
        "socket": socket.getdefaulttimeout(),
        "switch": sys.getswitchinterval(),
        "clock": time.time() > 1e9,
        "digits": sys.get_int_max_str_digits(),
        "hooks": [
            hook.__name__ for hook in (sys.excepthook, sys.unraisablehook, threading.excepthook)
        ],
        "arguments": sys.argv,
        "interpreter": [
            len(sys.path_hooks),
            str(sys.get_asyncgen_hooks()),
            sys.get_coroutine_origin_tracking_depth(),
            threading.stack_size(),
        ],
        "text": [stream.encoding for stream in (sys.stdout, sys.stderr)],
        "namespaces": sorted(os.readlink(path) for path in Path("/proc/self/ns").iterdir()),  # noqa: PTH115
        "precision": [decimal.getcontext().prec, repr(decimal.DefaultContext)],
        "context variable": _VARIABLE.get(),
        "files": len(os.listdir("/proc/self/fd")) // 100,  # noqa: PTH208 - as above
        "policy": os.sched_getscheduler(0),
        "oom": open("/proc/self/oom_score_adj").read(),  # noqa: PTH123 - as above
        "attributes": _attributes(),
    }


def _settings() -> dict[str, Any]:
    """Return settings of the interpreter, of the kernel's timers and of the standard streams."""
    return {
        "arithmetic": 0.1 + float(os.environ.get("NO_CONSTANT", "0.7")),
        "kernel timers": Path("/proc/self/timers").read_text(),
        "flags of output": [fcntl.fcntl(fd, fcntl.F_GETFL) for fd in (1, 2)],
        "settings": [getattr(sys, "tracebacklimit", None), sys.pycache_prefix],
        "debugger": sys.breakpointhook.__name__,
        "first streams": [
            stream is not None and stream.writable() for stream in (sys.__stdout__, sys.__stderr__)
        ],
    }


def _attributes() -> list[Any]:
    """Return I/O priority, memory policy, filter of core dumps and what prctl(2) shows."""
    value = ctypes.c_int()
    _system_call("get_mempolicy", ctypes.byref(value), None, 0, None, 0)
    flags = (3, 30, *(get for get, _, _ in PRCTL.values()))
    return [
        *(_system_call("ioprio_get", 1, 0), value.value),
        Path("/proc/self/coredump_filter").read_text(),
        *map(_attribute, (2, 37)),
        *(_libc.prctl(number, 0, 0, 0, 0) for number in flags),
    ]


def _attribute(option: int) -> int:
    value = ctypes.c_int()
    _libc.prctl(option, ctypes.byref(value), 0, 0, 0)
    return value.value


def _c_environment() -> list[str]:
    array = ctypes.POINTER(ctypes.c_char_p).in_dll(_libc, "environ")
    found, index = [], 0
    while (entry := array[index]) is not None:
        found.append(entry.decode())
        index += 1
    return sorted(line for line in found if not line.startswith("MITOSIS_TASK_"))


def process_id() -> int:
    return os.getpid()


def looks_thoroughly() -> bool:
    """Whether this worker will look for what only few handlers do, though this one has done nothing."""
    return process_state._watch.called


def delay_an_end() -> None:
    """Block the order to end that comes meanwhile, with a handler of one's own that ignores it."""
    signal.signal(signal.SIGTERM, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    os.kill(os.getpid(), signal.SIGTERM)


def dump_soon() -> None:
    faulthandler.dump_traceback_later(0.05, exit=True)
