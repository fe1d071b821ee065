"""Import the handler modules once, and decide whether a process that did may be forked (protocol P12)."""

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
    """A handler module raised while it was imported; the cause is what it raised."""

    def __init__(self, module: str, error: BaseException) -> None:
        super().__init__(f"{type(error).__name__}: {error}")
        self.module = module
        self.traceback = "".join(traceback.format_exception(error))[-MAX_TRACEBACK_CHARS:]


@dataclass(frozen=True, slots=True)
class Preloaded:
    import_seconds: float
    no_fork_reason: str | None


def preload(modules: tuple[str, ...], python_path: tuple[str, ...]) -> Preloaded:
    """Put ``python_path`` first, import, and freeze what is there so that forks share it.

    Raises:
        PreloadError: naming the module.
    """
    sys.path[:0] = python_path
    began = time.monotonic()
    for module in modules:
        try:
            importlib.import_module(module)
        except BaseException as error:
            raise PreloadError(module, error) from error
    seconds = time.monotonic() - began
    for stream in (sys.stdout, sys.stderr):  # or each fork would write it again
        if stream is not None:
            stream.flush()
    reason = _why_not_fork()
    gc.collect()
    gc.freeze()
    return Preloaded(seconds, reason)


def _why_not_fork() -> str | None:
    threads = len(os.listdir("/proc/self/task"))  # noqa: PTH208 - names are enough
    if threads > 1:
        return f"importing the handler modules started {threads - 1} threads"
    for thing in gc.get_objects():
        if isinstance(thing, zmq.Context) and not thing.closed:
            return "importing the handler modules made a ZeroMQ context"
    return None
