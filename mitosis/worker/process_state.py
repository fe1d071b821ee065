"""What a task can leave behind in the worker's process: compared after each task, restored or named.

Two looks. The quick one follows every handler and costs a few microseconds (``bench/worker_state.py``).
The thorough one reads what takes longer, and follows handlers long enough to hide its cost, handlers that
have called one of :data:`_WATCHED`, and the first handler after a tenth of a second. These functions are
watched before the first module of handlers is imported, and what the worker itself calls of them is
imported before that.

Not compared: modules and their variables, as ``tempfile.tempdir``, ``sys.path``, warning filters, random
numbers, native threads and signal handlers of C libraries. They belong to imported code, which every task
shares.
"""

import ctypes
import faulthandler
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
from _locale import LC_ALL, setlocale
from _signal import getitimer, getsignal, pthread_sigmask  # type: ignore[import-not-found] # the wrappers of signal cost more
from _thread import _count as python_threads
from _thread import stack_size
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from decimal import DefaultContext
from faulthandler import cancel_dump_traceback_later
from faulthandler import enable as report_crashes
from functools import partial, wraps
from operator import attrgetter
from pathlib import Path
from typing import Any

from mitosis.worker.kernel_attributes import KernelAttributes, open_if_there

_THOROUGH_AFTER_SECONDS = 0.001
_THOROUGH_EVERY_SECONDS = 0.1
_THREADS_MAY_END_SECONDS = 0.02
_SIGNALS = tuple(sorted(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}))
_LIMITS = tuple(
    sorted({getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")})
)
_libc = ctypes.CDLL(None, use_errno=True)
_FENV_BYTES = 64
_fenv = ctypes.create_string_buffer(_FENV_BYTES)
_VIRTUAL, _PROFILE = signal.ITIMER_VIRTUAL, signal.ITIMER_PROF
_CLOCKS = ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "sleep")
"""Functions of :mod:`time` that tests replace, and that the worker itself uses."""
_clocks = attrgetter(*_CLOCKS)
_MOST_FILES_LEFT = 64
"""So many open files may a handler keep, as in a pool of connections."""
_NAMESPACES = "/proc/self/ns"
_FIXED_NAMESPACES = {"pid", "time"}
"""Of a process these stay; what it changes is that of its next child."""
_WATCHED = (
    (resource, ("setrlimit", "prlimit")),
    (os, ("chroot", "setgroups", "initgroups", "unshare", "setns")),
    (os, ("setuid", "setgid", "seteuid", "setegid", "setreuid", "setregid")),
    (os, ("setresuid", "setresgid")),
    (os, ("sched_setscheduler", "sched_setparam")),
    (signal, ("signal", "setitimer")),
    (threading, ("settrace", "setprofile", "settrace_all_threads", "setprofile_all_threads")),
    (threading, ("stack_size",)),
    (tracemalloc, ("start", "stop")),
    (faulthandler, ("enable", "disable", "dump_traceback_later")),
    (sys, ("setdlopenflags", "setswitchinterval", "set_int_max_str_digits")),
    (sys, ("setrecursionlimit", "set_coroutine_origin_tracking_depth")),
    (gc, ("enable", "disable", "set_threshold", "set_debug")),
)
"""What a handler calls to change what only the thorough look sees; not every Python has all of them."""
_READ_PERSONALITY = 0xFFFFFFFF
"""Source: personality(2)."""
_DECIMAL_SETTINGS = ("prec", "rounding", "Emin", "Emax", "capitals", "clamp", "traps")
_decimal_settings = attrgetter(*_DECIMAL_SETTINGS)
_SYS_SETTINGS = ("pycache_prefix", "breakpointhook", "dont_write_bytecode")
"""Attributes of :mod:`sys` without a function that sets them."""
_sys_settings = attrgetter(*_SYS_SETTINGS)
_of_sys = vars(sys).get
_FENV_CONTROL = {"x86_64": 0xFFFF | 0xFFFFFFC0 << 224, "aarch64": 0xFFFFFFFF}
"""Bits of fenv_t that say how numbers are computed: x87 control word and MXCSR; FPCR.

Source: the C library's fenv.h of each machine. The other bits are the state of past computations.
"""
_control_bits = _FENV_CONTROL.get(platform.machine(), 0)


class _Watch:
    """Whether one of :data:`_WATCHED` has been called."""

    def __init__(self) -> None:
        self.called = False
        self._begun = False

    def begin(self) -> None:
        if self._begun:
            return
        self._begun = True
        for module, names in _WATCHED:
            for name in names:
                if (function := getattr(module, name, None)) is not None:
                    setattr(module, name, self._noted(function))

    def _noted(self, change: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(change)
        def changed(*args: Any, **named: Any) -> Any:
            self.called = True
            return change(*args, **named)

        return changed


_watch = _Watch()
watch_changes = _watch.begin
"""Begin to note calls of :data:`_WATCHED`; to be called before modules are imported that may keep one."""


def _set_handlers(handlers: list[Any]) -> None:
    for number, handler in zip(_SIGNALS, handlers, strict=True):
        if getsignal(number) != handler:
            signal.signal(number, handler)  # TypeError: it was installed by C code


def _set_mask(mask: set[int]) -> None:
    """Drop what the task sent to itself and blocked, before it ends this process; SIGTERM is obeyed."""
    while pending := signal.sigpending() - mask - {signal.SIGTERM}:
        signal.sigtimedwait(pending, 0)
    pthread_sigmask(signal.SIG_SETMASK, mask)


def _set_garbage_collector(state: tuple[bool, tuple[int, int, int], int]) -> None:
    enabled, threshold, debug = state
    gc.set_threshold(*threshold)
    gc.set_debug(debug)
    (gc.enable if enabled else gc.disable)()


def _set_trace(functions: tuple[Any, Any]) -> None:
    sys.settrace(functions[0])
    sys.setprofile(functions[1])


def _set_trace_of_threads(functions: tuple[Any, Any]) -> None:
    threading.settrace(functions[0])
    threading.setprofile(functions[1])


def _set_memory_trace(state: tuple[bool, int]) -> None:
    on, frames = state
    tracemalloc.stop()
    if on:
        tracemalloc.start(frames)


def _set_personality(flags: int) -> None:
    if _libc.personality(flags) == -1:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _set_decimal(settings: tuple[Any, ...]) -> None:
    for name, value in zip(_DECIMAL_SETTINGS, settings, strict=True):
        setattr(DefaultContext, name, value)


def _set_sys(values: tuple[Any, ...]) -> None:
    for name, value in zip(_SYS_SETTINGS, values, strict=True):
        setattr(sys, name, value)


def _floating_point() -> int:
    """Return rounding, flushing to zero and traps of this thread. Source: fenv(3)."""
    _libc.fegetenv(_fenv)
    return int.from_bytes(_fenv.raw, "little") & _control_bits


def _set_floating_point(control: int) -> None:
    _libc.fegetenv(_fenv)
    rest = int.from_bytes(_fenv.raw, "little") & ~_control_bits
    _fenv.raw = (rest | control).to_bytes(_FENV_BYTES, "little")
    _libc.fesetenv(_fenv)


def _clear_timers(_: object) -> None:
    for timer in (_VIRTUAL, _PROFILE):
        signal.setitimer(timer, 0)


def _set_policy(policy: int) -> None:
    os.sched_setscheduler(0, policy, os.sched_param(0))


def _set_hooks(hooks: tuple[Any, Any, Any]) -> None:
    sys.excepthook, sys.unraisablehook, threading.excepthook = hooks


def _set_clocks(functions: tuple[Any, ...]) -> None:
    for name, function in zip(_CLOCKS, functions, strict=True):
        setattr(time, name, function)


def _set_arguments(arguments: list[str]) -> None:
    sys.argv = arguments.copy()


def _lowest_free_descriptor() -> int:
    os.close(descriptor := os.dup(0))
    return descriptor


def _never(_: object) -> None:
    raise PermissionError


_RESTORE: tuple[tuple[str, Callable[[Any], object]], ...] = (
    ("signal mask", _set_mask),
    ("priority", lambda value: os.setpriority(os.PRIO_PROCESS, 0, value)),
    ("cores", lambda cores: os.sched_setaffinity(0, cores)),
    ("locale", lambda name: setlocale(LC_ALL, name)),
    ("time zone", lambda _: time.tzset()),
    ("trace function", _set_trace),
    ("socket timeout", socket.setdefaulttimeout),
    ("clocks", _set_clocks),
    ("exception hooks", _set_hooks),
    ("arguments", _set_arguments),
    ("import hooks", _never),  # a module that stays imported may need its own
    ("hooks of generators", lambda hooks: sys.set_asyncgen_hooks(*hooks)),
    ("settings of the interpreter", _set_sys),
    ("length of tracebacks", lambda limit: setattr(sys, "tracebacklimit", limit)),
)
"""What the quick look reads, and how it is put back; an error means that it cannot be."""
_PRIORITY, _CORES = 1, 2
_RESTORE_RARE: tuple[tuple[str, Callable[[Any], object]], ...] = (
    ("signal handlers", _set_handlers),
    ("timers", _clear_timers),
    ("scheduling policy", _set_policy),
    ("trace function of threads", _set_trace_of_threads),
    ("trace of memory", _set_memory_trace),
    ("flags of dlopen", sys.setdlopenflags),
    ("personality", _set_personality),
    ("switch interval", sys.setswitchinterval),
    ("digits of integers", sys.set_int_max_str_digits),
    ("stack of threads", stack_size),
    ("garbage collector", _set_garbage_collector),
    ("recursion limit", sys.setrecursionlimit),
    ("origins of coroutines", sys.set_coroutine_origin_tracking_depth),
    ("floating-point arithmetic", _set_floating_point),
)
"""What the thorough look puts back besides limits; :data:`_WATCHED` has what sets it."""


class ProcessState:
    """The state of a worker's process before its first task."""

    def __init__(self, crash_fd: int) -> None:
        """``crash_fd`` is where the traceback of a crash is written."""
        self._crash_fd = crash_fd
        self._limits_fd = os.open("/proc/self/limits", os.O_RDONLY | os.O_CLOEXEC)
        self._status_fd = os.open("/proc/self/status", os.O_RDONLY | os.O_CLOEXEC)
        self._timers_fd = open_if_there("/proc/self/timers")
        self._attributes = KernelAttributes()
        self._namespaces_fd = os.open(_NAMESPACES, os.O_RDONLY | os.O_CLOEXEC)
        spaces = {path.name for path in Path(_NAMESPACES).iterdir()}
        self._namespaces = sorted(spaces - _FIXED_NAMESPACES)
        self._thorough_at = 0.0
        watch_changes()
        self._remember()

    def _remember(self) -> None:
        os.umask(umask := os.umask(0o077))
        self._umask, self._threads = umask, python_threads()
        self._limits = {number: resource.getrlimit(number) for number in _LIMITS}
        self._limits_text = os.pread(self._limits_fd, 8192, 0)
        self._quick, self._rare, self._rest = self._look(), _look_rare(), self._read_rest()
        self._settable = self._attributes.read_settable()
        self._files = _lowest_free_descriptor() + _MOST_FILES_LEFT
        self._decimal_copy = DefaultContext.copy()  # its traps are a view that does not keep it
        self._decimal = _decimal_settings(self._decimal_copy)

    @contextmanager
    def keeping_changes(self) -> Iterator[None]:
        """Keep what the block changes: it imports code that every task shares."""
        yield
        self._remember()

    def restore(self, seconds: float) -> str | None:
        """Put back what a handler that ran for ``seconds`` has changed.

        Returns:
            What cannot be put back; None if the next task sees what the first saw.
        """
        os.umask(self._umask)
        if _decimal_settings(DefaultContext) != self._decimal:
            _set_decimal(self._decimal)
        left: list[str] = []
        now = time.monotonic()
        thorough = seconds >= _THOROUGH_AFTER_SECONDS or _watch.called or now >= self._thorough_at
        if thorough:  # first: a blocked SIGTERM is to meet the worker's own handler
            self._thorough_at = now + _THOROUGH_EVERY_SECONDS
            left += self._put_back_rare()
        if self._look() != self._quick:
            left += _put_back(_RESTORE, self._quick, self._look())
        if python_threads() > self._threads and not self._threads_end():
            left.append("a thread")
        if _lowest_free_descriptor() > self._files:
            left.append("open files")
        if thorough and (
            self._read_rest() != self._rest or self._attributes.read_settable() != self._settable
        ):
            left.append(
                "another user, root folder, namespace, capability, ignored signal, timer or attribute"
            )
        return ", ".join(left) or None

    def raise_file_limit(self) -> None:
        """Allow open files again, as many as at first or as this process may: all looks need some."""
        now = resource.getrlimit(resource.RLIMIT_NOFILE)
        first = self._limits[resource.RLIMIT_NOFILE]
        if now == first:
            return
        _watch.called = True
        if _tried("limits", partial(resource.setrlimit, resource.RLIMIT_NOFILE), first):
            resource.setrlimit(resource.RLIMIT_NOFILE, (now[1], now[1]))

    def restore_attributes(self) -> str | None:
        """Put back what a command can change in its parent: limits, priority, cores."""
        left = self._put_back_limits()
        now = {_PRIORITY: os.getpriority(os.PRIO_PROCESS, 0), _CORES: os.sched_getaffinity(0)}
        for index, value in now.items():
            if value != self._quick[index]:
                left += _tried(*_RESTORE[index], self._quick[index])
        if self._attributes.read_settable() != self._settable:
            left.append("a process attribute")
        return ", ".join(left) or None

    # --- looking --------------------------------------------------------------------------------

    def _look(self) -> tuple[Any, ...]:
        """Return the values of :data:`_RESTORE`, in its order."""
        return (
            pthread_sigmask(signal.SIG_BLOCK, ()),
            os.getpriority(os.PRIO_PROCESS, 0),
            os.sched_getaffinity(0),
            setlocale(LC_ALL),
            (time.tzname, time.timezone, time.altzone),
            (sys.gettrace(), sys.getprofile()),
            socket.getdefaulttimeout(),
            _clocks(time),
            (sys.excepthook, sys.unraisablehook, threading.excepthook),
            sys.argv.copy(),
            sys.path_hooks.copy(),
            sys.get_asyncgen_hooks(),
            _sys_settings(sys),
            _of_sys("tracebacklimit"),
        )

    def _read_rest(self) -> tuple[Any, ...]:
        """Return what cannot be put back: identity, root folder, signals, capabilities, timers and more.

        Source: proc_pid_status(5), namespaces(7), proc_pid_timers(5).
        """
        text = os.pread(self._status_fd, 8192, 0)
        root = os.stat("/")  # noqa: PTH116 - a hot path
        user = text[text.find(b"TracerPid:") : text.find(b"FDSize:")]
        groups = text[text.find(b"Groups:") : text.find(b"VmPeak:")]
        signals = text[text.find(b"SigBlk:") : text.find(b"SigCgt:")]
        rights = text[text.find(b"CapInh:") : text.find(b"voluntary_ctxt")]
        spaces = tuple(map(self._namespace, self._namespaces))
        timers = b"" if self._timers_fd is None else os.pread(self._timers_fd, 4096, 0)
        place = (root.st_dev, root.st_ino, spaces)
        return (user, groups, signals, rights, place, timers, self._attributes.read())

    def _namespace(self, name: str) -> str:
        """Return which one it is; one for children that has none yet has no name."""
        try:
            return os.readlink(name, dir_fd=self._namespaces_fd)
        except FileNotFoundError:
            return ""

    # --- restoring ------------------------------------------------------------------------------

    def _put_back_rare(self) -> list[str]:
        report_crashes(self._crash_fd)
        cancel_dump_traceback_later()
        left = self._put_back_limits() + _put_back(_RESTORE_RARE, self._rare, _look_rare())
        _watch.called = False
        return left

    def _put_back_limits(self) -> list[str]:
        if os.pread(self._limits_fd, 8192, 0) == self._limits_text:
            return []
        left: list[str] = []
        for number, values in self._limits.items():
            if resource.getrlimit(number) != values:
                left += _tried("limits", partial(resource.setrlimit, number), values)
        return left[:1]

    def _threads_end(self) -> bool:
        """Wait a moment for threads that are about to end."""
        deadline = time.monotonic() + _THREADS_MAY_END_SECONDS
        while python_threads() > self._threads:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.001)
        return True


def _look_rare() -> tuple[Any, ...]:
    """Return the values of :data:`_RESTORE_RARE`, in its order."""
    return (
        list(map(getsignal, _SIGNALS)),
        (getitimer(_VIRTUAL), getitimer(_PROFILE)),
        os.sched_getscheduler(0),
        (threading.gettrace(), threading.getprofile()),
        (tracemalloc.is_tracing(), tracemalloc.get_traceback_limit()),
        sys.getdlopenflags(),
        _libc.personality(_READ_PERSONALITY),
        sys.getswitchinterval(),
        sys.get_int_max_str_digits(),
        stack_size(),
        (gc.isenabled(), gc.get_threshold(), gc.get_debug()),
        sys.getrecursionlimit(),
        sys.get_coroutine_origin_tracking_depth(),
        _floating_point(),
    )


def _put_back(
    restore: Sequence[tuple[str, Callable[[Any], object]]],
    values: Sequence[Any],
    found: Sequence[Any],
) -> list[str]:
    """Put back what differs; return the names of what cannot be."""
    left: list[str] = []
    for (name, put_back), value, now in zip(restore, values, found, strict=True):
        if now != value:
            left += _tried(name, put_back, value)
    return left


def _tried(name: str, restore: Callable[[Any], object], value: object) -> list[str]:
    """Restore a value; return its name if that is not possible."""
    try:
        restore(value)
    except (OSError, ValueError, TypeError, MemoryError, locale.Error):
        return [name]
    return []
