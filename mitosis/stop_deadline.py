"""The end of a stop that hangs: at a fixed time every process below this one is killed, and then this one.

The guards of hooks are spared: once its agent is gone, each kills what its hook has started, also what is
no more below this process. A thread does it, so that no blocked event loop, stuck thread or stopped child
can prevent it. PostgreSQL recovers from its log at the next start, and tasks run again.
"""

import contextlib
import logging
import os
import threading

import psutil

log = logging.getLogger(__name__)

STATUS = 70
"""The exit status of a stop that had to be forced (EX_SOFTWARE)."""
LOG_SECONDS = 0.5
GUARDED = "MITOSIS_HOOK_RUN="
"""An argument of a guard begins so (``mitosis/execution/hook_guard.py``)."""
_ROUNDS = 5


class StopDeadline:
    """Ends the process ``seconds`` after :meth:`arm`, unless :meth:`disarm` comes first."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._over = threading.Event()
        self._armed = False

    def arm(self) -> None:
        """Start the clock. Later calls change nothing."""
        if not self._armed:
            self._armed = True
            self.end_within(self.seconds)

    def disarm(self) -> None:
        """Stop the clock: nothing is left to stop."""
        self._over.set()

    def end_within(self, seconds: float) -> None:
        """Start another clock of ``seconds``, as when all that is left is stuck."""
        threading.Thread(
            target=self._end_after, args=(seconds,), name="stop deadline", daemon=True
        ).start()

    def _end_after(self, seconds: float) -> None:
        if self._over.wait(seconds):
            return
        killed = kill_descendants()
        logging_thread = threading.Thread(target=self._log, args=(killed,), daemon=True)
        logging_thread.start()
        logging_thread.join(LOG_SECONDS)  # a stuck thread may hold the lock of the log
        os._exit(STATUS)

    def _log(self, killed: list[str]) -> None:
        log.error("stop.forced", extra={"after_seconds": self.seconds, "killed": killed})


def kill_descendants() -> list[str]:
    """Kill every process below this one but guards of hooks, stopped ones too; return their names."""
    killed: dict[int, str] = {}
    for _ in range(_ROUNDS):  # one may have forked in between
        living = [
            process
            for process in psutil.Process().children(recursive=True)
            if process.pid not in killed and not _is_guard(process)
        ]
        for process in living:
            with contextlib.suppress(psutil.Error):
                killed[process.pid] = process.name()
                process.kill()
        if not living:
            break
    return sorted(set(killed.values()))


def _is_guard(process: psutil.Process) -> bool:
    try:
        return any(word.startswith(GUARDED) for word in process.cmdline())
    except psutil.Error:
        return False
