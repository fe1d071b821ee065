"""The environment variables of the worker's process: changed for a handler, and put back after it.

``os.environ`` is a copy of the variables that C code sees; a handler can change both, or only one of
them (``os.putenv``, a library). Every change replaces a pointer in C's array or the array itself, so one
comparison of that array finds all of them. Source: environ(7), setenv(3).
"""

import ctypes
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

_libc = ctypes.CDLL(None)
_POINTER_BYTES = ctypes.sizeof(ctypes.c_void_p)


class ProcessEnvironment:
    """The variables of a worker before its first task, and those of the running one."""

    def __init__(self) -> None:
        self._python = os.environ
        self._own = dict(os.environ)
        self._array = ctypes.c_void_p.in_dll(_libc, "environ")
        self._surplus = self._length() - len(os.environ)
        self._address: int | None = None
        self._count = 0
        self._view: ctypes.Array[ctypes.c_char] = (ctypes.c_char * 0)()
        self._pointers = b""
        self._extra: Mapping[str, str] = {}

    def enter(self, extra: Mapping[str, str], of_task: Mapping[str, str]) -> None:
        """Set the variables of a task.

        Args:
            extra: removed again by :meth:`leave`.
            of_task: set for every task, and so never removed.

        Raises:
            ValueError: a name or value cannot be in an environment.
        """
        self._extra = extra
        os.environ.update(extra)
        os.environ.update(of_task)
        self._note()

    def leave(self) -> None:
        """Put every variable back; costs a microsecond if the handler changed none."""
        if os.environ is not self._python or self._changed():
            self._rebuild()
        elif self._extra:
            for name in self._extra:
                if (value := self._own.get(name)) is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value
            if "TZ" in self._extra:
                time.tzset()

    @contextmanager
    def keeping_changes(self) -> Iterator[None]:
        """Keep what the block changes: it imports code that every task shares."""
        before = dict(os.environ)
        yield
        after = dict(os.environ)
        for name in before.keys() - after.keys():
            self._own.pop(name, None)
        self._own.update({name: after[name] for name in after if before.get(name) != after[name]})
        self._note()

    def _note(self) -> None:
        """Copy the pointers to all variables, and the null pointer behind them."""
        address, count = self._array.value, len(os.environ) + self._surplus + 1
        if address != self._address or count != self._count:
            self._address, self._count = address, count
            size = count * _POINTER_BYTES if address else 0
            self._view = (ctypes.c_char * size).from_address(address or 0)
        self._pointers = self._view.raw

    def _changed(self) -> bool:
        if self._address is None or self._array.value != self._address:
            return True
        return self._view.raw != self._pointers

    def _rebuild(self) -> None:
        os.environ = self._python  # noqa: B003 - a handler has replaced the object
        os.environ.clear()
        _libc.clearenv()
        os.environ.update(self._own)
        self._surplus = 0
        time.tzset()

    def _length(self) -> int:
        address, length = self._array.value, 0
        while address and ctypes.c_void_p.from_address(address + length * _POINTER_BYTES).value:
            length += 1
        return length
