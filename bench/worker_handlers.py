"""No-op handlers: per second with two workers behind a real ROUTER, and one at a time, beside a
ProcessPoolExecutor of two.

Both take the same calls in turns. Ours sends every task as its own message part, says that it started
and how it ended, with the time and memory it took; the executor's only gives the result back.
"""

import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import msgspec

from mitosis.contracts.attempt import AttemptKey
from mitosis.ipc.codec import decode_for_manager, encode
from mitosis.ipc.messages import Hello, RunTask, RunTasks, TasksFinished, TaskStarted
from mitosis.worker.zygote_protocol import Spawn
from tests.support.worker_host import WorkerHost, worker_host

TASKS, ROUNDS, WORKERS, CREDIT, SINGLES = 10_000, 5, 2, 8, 500


def executor_seconds(pool: ProcessPoolExecutor) -> float:
    began = time.perf_counter()
    for future in [pool.submit(abs, -1) for _ in range(TASKS)]:
        assert future.result() == 1
    return time.perf_counter() - began


def worker_seconds(host: WorkerHost, identities: list[bytes]) -> float:
    spec = msgspec.json.encode({"handler": "builtins:abs", "arguments": [-1]})
    sent = finished = 0
    began = time.perf_counter()

    def give(identity: bytes, count: int) -> None:
        nonlocal sent
        count = min(count, TASKS - sent)
        if count:
            tasks = tuple(RunTask(AttemptKey(sent + i, 1), spec) for i in range(count))
            host.router.send_multipart([identity, encode(RunTasks(tasks))])
            sent += count

    for identity in identities:
        give(identity, CREDIT)
    while finished < TASKS:
        identity, frame = host.router.recv_multipart()
        match decode_for_manager(frame):
            case TasksFinished(tasks):
                finished += len(tasks)
                give(identity, len(tasks))
            case TaskStarted() | Hello():
                pass
    return time.perf_counter() - began


def executor_latencies(pool: ProcessPoolExecutor) -> list[float]:
    def once() -> None:
        assert pool.submit(abs, -1).result() == 1

    return [timed(once) for _ in range(SINGLES)]


def worker_latencies(host: WorkerHost) -> list[float]:
    def once() -> None:
        host.submit({"handler": "builtins:abs", "arguments": [-1]})
        host.finished()

    return [timed(once) for _ in range(SINGLES)]


def timed(once: Callable[[], None]) -> float:
    began = time.perf_counter()
    once()
    return time.perf_counter() - began


def main() -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        ProcessPoolExecutor(WORKERS) as pool,
        worker_host(Path(folder)) as host,
    ):
        for slot in range(WORKERS):
            host.say(Spawn(slot, 1))
            host.receive(Hello)
        identities = [f"{slot}:1".encode() for slot in range(WORKERS)]
        executor_seconds(pool), worker_seconds(host, identities)
        pairs = [(executor_seconds(pool), worker_seconds(host, identities)) for _ in range(ROUNDS)]
        host.generation = 1
        singles = executor_latencies(pool), worker_latencies(host)
    floor, ours = (TASKS / statistics.median(times) for times in zip(*pairs, strict=True))
    print(f"ProcessPoolExecutor {floor:8.0f} /s")
    print(f"two workers         {ours:8.0f} /s")
    print(f"ratio               {statistics.median(f / w for f, w in pairs):8.2f}   (goal 1.0)")
    there, here = (statistics.median(times) * 1e6 for times in singles)
    print(f"one at a time, p50  {there:8.0f} us in the executor, {here:.0f} us in a worker")


if __name__ == "__main__":
    main()
