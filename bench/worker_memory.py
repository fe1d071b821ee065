"""What do 64 idle workers cost: time until all have said Hello, and memory shared out fairly (PSS)?"""

import statistics
import tempfile
import time
from pathlib import Path

from mitosis.ipc.messages import Hello
from mitosis.worker.zygote_protocol import Ready, Spawn
from tests.support.worker_host import worker_host

WORKERS = 64


def pss_bytes(pid: int) -> int:
    """Source: proc_pid_smaps(5), smaps_rollup."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return int(text.split("\nPss:")[1].split()[0]) * 1024


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, worker_host(Path(folder)) as host:
        host.hear(Ready)
        began = time.perf_counter()
        for slot in range(WORKERS):
            host.say(Spawn(slot, 1))
        pids = [host.receive(Hello).pid for _ in range(WORKERS)]
        seconds = time.perf_counter() - began
        sizes = [pss_bytes(pid) / 1e6 for pid in pids]
        zygote = pss_bytes(host.zygote.pid) / 1e6
    print(f"{WORKERS} workers ready     {seconds * 1000:8.0f} ms")
    print(f"PSS of a worker      {statistics.median(sizes):8.2f} MB   (goal 3)")
    print(f"PSS of the zygote    {zygote:8.2f} MB")


if __name__ == "__main__":
    main()
