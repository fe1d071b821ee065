"""Identifies the instance of the file system and of the process tree in which an agent runs.

A boot id and a machine id say nothing about a container: its file system can be replaced, and all its
processes ended, while the state folder, a volume, stays. Nothing has to be written for this mark, so it
needs no rights and cannot be copied with an image:

* the root folder: its inode, the time of its creation and the id of its file system. A new container has
  a new root (of an overlay, the new upper layer); a container or host that is started again keeps it.
* the start of process 1: with it end the daemons, ``/run`` and other file systems in memory.
"""

import ctypes
import os
from pathlib import Path

from mitosis.worker.process_tree import stat_fields

_AT_FDCWD = -100
_STATX_INO, _STATX_BTIME = 0x100, 0x800
_STARTTIME = 19
"""Field 22 of proc_pid_stat(5), counted from the state, which follows the name in parentheses."""


class _Time(ctypes.Structure):
    _fields_ = (
        ("seconds", ctypes.c_int64),
        ("nanoseconds", ctypes.c_uint32),
        ("_", ctypes.c_int32),
    )


class _Statx(ctypes.Structure):
    """Source: statx(2), linux/stat.h; 256 bytes."""

    _fields_ = (
        ("mask", ctypes.c_uint32),
        ("_to_inode", ctypes.c_byte * 28),
        ("inode", ctypes.c_uint64),
        ("_to_times", ctypes.c_byte * 24),
        ("accessed", _Time),
        ("born", _Time),
        ("_rest", ctypes.c_byte * 160),
    )


def instance_mark(root: Path = Path("/"), first: int = 1) -> str:
    """Return a text that differs after the root folder was replaced or process 1 has started again."""
    return f"root {_born(root)}, process 1 {_started(first)}"


def _born(folder: Path) -> str:
    """Return the inode, the time of creation (0 where it is not kept) and the file system's id."""
    found = _Statx()
    statx = getattr(ctypes.CDLL(None), "statx", None)
    path = os.fsencode(folder)
    mask = _STATX_INO | _STATX_BTIME
    if statx is None or statx(_AT_FDCWD, path, 0, mask, ctypes.byref(found)) != 0:
        found.mask = 0
    born = found.born if found.mask & _STATX_BTIME else _Time()
    when = f"{born.seconds}.{born.nanoseconds:09}"
    return f"{folder.stat().st_ino} of {when} on {os.statvfs(folder).f_fsid:x}"


def _started(pid: int) -> str:
    """Return the start of the process in clock ticks after the boot; empty if that is hidden."""
    fields = stat_fields(pid)
    return fields[_STARTTIME].decode() if fields else ""
