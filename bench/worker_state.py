"""What it costs to find that a handler has left nothing behind: microseconds of CPU time per task.

The quick look and the comparison of the environment follow every handler; their sum is to be at most 8 µs.
The thorough look follows handlers of a millisecond or more, the last one every command.
"""

import os
import time
import timeit
from collections.abc import Callable

from mitosis.worker.environ import ProcessEnvironment
from mitosis.worker.process_state import ProcessState

ROUNDS, CALLS = 200, 1_000


def microseconds(call: Callable[[], object]) -> float:
    """Return the CPU time of one call, the least of many rounds."""
    call()
    rounds = timeit.repeat(call, number=CALLS, repeat=ROUNDS, timer=time.process_time)
    return min(rounds) / CALLS * 1e6


def main() -> None:
    state, environment = ProcessState(crash_fd=2), ProcessEnvironment()
    variables = {
        "MITOSIS_TASK_ID": "1",
        "MITOSIS_TASK_UUID": "0" * 36,
        "MITOSIS_TASK_ATTEMPT": "1",
    }

    def surrounded() -> None:
        environment.enter({}, variables)
        environment.leave()

    setting = microseconds(lambda: os.environ.update(variables))
    quick = microseconds(lambda: state.restore(0.0))
    compared = microseconds(surrounded) - setting
    print(f"quick look            {quick:6.1f} µs")
    print(f"environment compared  {compared:6.1f} µs")
    print(f"sum of both           {quick + compared:6.1f} µs")
    print(f"thorough look         {microseconds(lambda: state.restore(1.0)):6.1f} µs")
    print(f"after a command       {microseconds(state.restore_attributes):6.1f} µs")


if __name__ == "__main__":
    main()
