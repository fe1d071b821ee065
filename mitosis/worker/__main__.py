"""``python -P -m mitosis.worker zygote`` (by the agent) or ``worker`` (by a zygote that may not fork)."""

import os
import sys

import msgspec

from mitosis.worker.evidence import Evidence
from mitosis.worker.preload import preload
from mitosis.worker.process import run_worker
from mitosis.worker.process_state import watch_changes
from mitosis.worker.settings import WorkerSettings
from mitosis.worker.zygote import main

EXIT_USAGE = 64
"""Source: sysexits.h, EX_USAGE."""


def exec_worker() -> None:
    """Read the settings from standard input and run the worker."""
    with open(0, "rb", closefd=False) as file:
        kind = tuple[WorkerSettings, int, Evidence]
        settings, parent, evidence = msgspec.msgpack.decode(file.read(), type=kind)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    watch_changes()
    preload(settings.setup.handler_modules, settings.setup.python_path)
    for fd in evidence:
        os.set_inheritable(fd, False)
    run_worker(settings, parent, evidence)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["zygote"]:
            sys.exit(main())
        case ["worker"]:
            exec_worker()
        case _:
            print(__doc__, file=sys.stderr)  # noqa: T201 - usage
            sys.exit(EXIT_USAGE)
