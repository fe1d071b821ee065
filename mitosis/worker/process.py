"""Sets up a new worker process, forked or exec'd: signals, parent, session, random numbers."""

import faulthandler
import os
import signal
import sys
import traceback
from pathlib import Path
from types import FrameType
from typing import NoReturn

from mitosis.worker.evidence import Evidence
from mitosis.worker.linux import become_subreaper, die_with_parent, name_process
from mitosis.worker.loop import Worker
from mitosis.worker.process_tree import end_with_all
from mitosis.worker.scratch import ScratchFolder
from mitosis.worker.settings import WorkerSettings

EXIT_BROKEN = 70
"""The worker itself failed; the reason is on its stderr. Source: sysexits.h, EX_SOFTWARE."""


def run_worker(settings: WorkerSettings, parent: int, evidence: Evidence) -> NoReturn:
    """Run the worker of this slot; never returns into the code of the zygote.

    When the zygote (``parent``) dies the kernel sends SIGTERM, and SIGTERM ends the worker with all
    its descendants. The zygote reads ``evidence`` afterwards; a crash in C code writes its Python
    traceback there.
    """
    status = EXIT_BROKEN
    try:
        os.setsid()
        name_process(f"mitosis-{settings.slot}")
        signal.signal(signal.SIGTERM, _on_sigterm)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        die_with_parent(parent, signal.SIGTERM)
        become_subreaper()
        _reseed()
        faulthandler.enable(evidence.stderr_fd)
        scratch = ScratchFolder(Path(settings.scratch_folder))
        os.chdir("/")
        status = Worker(settings, scratch, evidence).serve()
    except BaseException:  # noqa: BLE001 - the last frame of this process
        traceback.print_exc()
    finally:
        os._exit(status)


def _reseed() -> None:
    """Reseed numpy, so that forked workers draw different numbers; ``random`` reseeds itself."""
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()


def _on_sigterm(_number: int, _frame: FrameType | None) -> None:
    end_with_all(signal.SIGTERM)
