"""What every task of the campaign does, as a handler and as a command: it runs for a moment and records that.

The record is a file outside of the database. A line is one ``write`` on ``O_APPEND``, so lines of many
processes never mix. What a task answers is computed from its record, so the two can be compared::

    S <nonce> <number> <task id> <attempt> <prepared> <monotonic ns> <manager id>
    E <nonce> <monotonic ns>

Standard library only: the handler form runs in a worker, the command form in ``python -I -S``.
"""

import hashlib
import os
import sys
import time

RECORDS = "CHAOS_RECORDS"
PREPARED = "CHAOS_PREPARED"
"""The folder that the setup hook makes and the teardown hook removes; it may name ``$MITOSIS_MANAGER_ID``."""


def answer(nonce: str, number: int, attempt: int) -> str:
    """What an execution with this record must have given as its result."""
    return hashlib.sha256(f"{nonce} {number} {attempt}".encode()).hexdigest()


def work(number: int, seconds: float, failures: int, size: int = 0) -> str:
    """Run for ``seconds``; the first ``failures`` attempts fail; ``size`` characters follow the answer.

    Raises:
        RuntimeError: this attempt is to fail.
    """
    attempt, nonce = int(os.environ["MITOSIS_TASK_ATTEMPT"]), os.urandom(8).hex()
    folder = os.path.expandvars(os.environ[PREPARED])
    prepared = int(os.path.isdir(folder))  # noqa: PTH112 - without pathlib's import
    who = f"{number} {os.environ['MITOSIS_TASK_ID']} {attempt}"
    host = os.environ["MITOSIS_MANAGER_ID"]
    _record(f"S {nonce} {who} {prepared} {time.monotonic_ns()} {host}")
    time.sleep(seconds)
    text = answer(nonce, number, attempt)
    print(text, flush=True)
    _record(f"E {nonce} {time.monotonic_ns()}")
    if attempt <= failures:
        raise RuntimeError("this attempt fails as planned")
    return text + "x" * size


def _record(line: str) -> None:
    file = os.open(os.environ[RECORDS], os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
    try:
        os.write(file, f"{line}\n".encode())
    finally:
        os.close(file)


if __name__ == "__main__":
    numbers = [int(word) for word in (sys.argv[1], *sys.argv[3:])]
    print("x" * sum(numbers[2:]), flush=True)
    work(numbers[0], float(sys.argv[2]), numbers[1])
