"""How much of a bare posix_spawn loop does one worker reach on ``/bin/true``, exit status kept?

Both run the same commands one at a time, in turns, in this process and in a real worker behind a real
ROUTER. The worker adds to the floor: messages, an environment per task, two output pipes, a pidfd, and
the proof that nothing of the command is left.
"""

import os
import statistics
import tempfile
import time
from pathlib import Path

from tests.support.worker_host import WorkerHost, worker_host

TASKS, ROUNDS = 300, 7


def floor_seconds() -> float:
    began = time.perf_counter()
    for _ in range(TASKS):
        pid = os.posix_spawn("/bin/true", ["/bin/true"], os.environ)
        os.waitpid(pid, 0)
    return time.perf_counter() - began


def worker_seconds(host: WorkerHost) -> float:
    began = time.perf_counter()
    host.submit(*[{"command": ["/bin/true"]}] * TASKS)
    assert all(report.exit_code == 0 for report in host.finished(TASKS))
    return time.perf_counter() - began


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, worker_host(Path(folder)) as host:
        host.spawn()
        worker_seconds(host)
        pairs = [(floor_seconds(), worker_seconds(host)) for _ in range(ROUNDS)]
    floor, ours = (TASKS / statistics.median(times) for times in zip(*pairs, strict=True))
    ratio = statistics.median(f / w for f, w in pairs)
    print(f"posix_spawn loop   {floor:8.0f} /s")
    print(f"one worker         {ours:8.0f} /s")
    print(f"ratio              {ratio:8.2f}   (goal 0.75)")


if __name__ == "__main__":
    main()
