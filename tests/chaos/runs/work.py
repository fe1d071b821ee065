"""What the tasks of a run do, as handlers: each records its begin and its end outside of the database.

A line is one ``write`` on ``O_APPEND``, so lines of many processes never mix::

    S <run> <step> <index> <attempt> <monotonic ns>
    E <run> <step> <index> <attempt> <monotonic ns>
"""

import os
import time

RECORDS = "CHAOS_RUN_RECORDS"


def work(run: int, step: str, index: int, seconds: float, failures: int = 0) -> int:
    """Run for ``seconds`` and return the index; the first ``failures`` attempts fail.

    Raises:
        RuntimeError: this attempt is to fail.
    """
    attempt = int(os.environ["MITOSIS_TASK_ATTEMPT"])
    who = f"{run} {step} {index} {attempt}"
    _record(f"S {who} {time.monotonic_ns()}")
    time.sleep(seconds)
    _record(f"E {who} {time.monotonic_ns()}")
    if attempt <= failures:
        raise RuntimeError("this attempt fails as planned")
    return index


def merge(run: int, values: list[int | None], seconds: float) -> int:
    """Return the sum of the values that are there."""
    work(run, "merge", 0, seconds)
    return sum(value for value in values if value is not None)


def _record(line: str) -> None:
    file = os.open(os.environ[RECORDS], os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
    try:
        os.write(file, f"{line}\n".encode())
    finally:
        os.close(file)
