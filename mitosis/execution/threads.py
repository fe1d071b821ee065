"""Makes the threads of the agent ahead of their use."""

import threading
from concurrent.futures import ThreadPoolExecutor


def started_threads(count: int) -> ThreadPoolExecutor:
    """Return an executor whose threads all run already: no call of it needs a new one.

    Raises:
        RuntimeError: the threads cannot be made.
    """
    executor = ThreadPoolExecutor(count)
    all_there = threading.Barrier(count + 1)
    try:
        for _ in range(count):
            executor.submit(all_there.wait)
    except RuntimeError:
        all_there.abort()
        raise
    all_there.wait()
    return executor
