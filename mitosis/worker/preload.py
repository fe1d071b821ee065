"""Imports the handler modules once, and decides whether this process may be forked then (protocol P12)."""

import gc
import importlib
import os
import sys
import time
import traceback
from dataclasses import dataclass

import zmq

MAX_TRACEBACK_CHARS = 16_000


class PreloadError(Exception):
    """The import of a handler module failed; the cause is the error it raised."""

    def __init__(self, module: str, error: BaseException) -> None:
        super().__init__(f"{type(error).__name__}: {error}")
        self.module = module
        self.traceback = "".join(traceback.format_exception(error))[-MAX_TRACEBACK_CHARS:]


@dataclass(frozen=True, slots=True)
class Preloaded:
    import_seconds: float
    no_fork_reason: str | None


def preload(modules: tuple[str, ...], python_path: tuple[str, ...]) -> Preloaded:
    """Import the modules, with ``python_path`` first, and freeze all objects so that forks share them.

    Raises:
        PreloadError: a module cannot be imported.
    """
    sys.path[:0] = python_path
    began = time.monotonic()
    for module in modules:
        try:
            importlib.import_module(module)
        except BaseException as error:
            raise PreloadError(module, error) from error
    seconds = time.monotonic() - began
    for stream in (sys.stdout, sys.stderr):  # each fork would write the buffer again
        if stream is not None:
            stream.flush()
    reason = _no_fork_reason()
    gc.collect()
    gc.freeze()
    return Preloaded(seconds, reason)


def _no_fork_reason() -> str | None:
    threads = len(os.listdir("/proc/self/task"))  # noqa: PTH208 - names are enough
    if threads > 1:
        return f"importing the handler modules started {threads - 1} threads"
    for thing in gc.get_objects():
        if isinstance(thing, zmq.Context) and not thing.closed:
            return "importing the handler modules made a ZeroMQ context"
    return None
