"""The connection of a worker, whose descriptors a task may close or replace."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

from mitosis.ipc.codec import decode_for_manager, encode
from mitosis.ipc.messages import Goodbye, Hello, Shutdown

PROGRAM = """
import os, sys
from mitosis.ipc.messages import Goodbye, Hello
from mitosis.worker.channel import WorkerChannel
def state(thread):
    return open(f"/proc/self/task/{thread}/stat").read().rpartition(")")[2].split()[0]
hello = Hello(0, 1, os.getpid(), (0,))
channel = WorkerChannel(sys.argv[1], b"0:1")
channel.send(hello)
sys.stdin.readline()
while not channel._connection_known:
    list(channel.receive())
assert channel.intact
own = set(channel._watched)
while any(state(thread) != "S" for thread in os.listdir("/proc/self/task") if thread != str(os.getpid())):
    pass  # a thread of libzmq that is awake would find its epoll closed
exec(sys.argv[2])
assert not channel.intact
channel.offer(Goodbye(0, 1, "lost"))
channel.open_again(b"0:1:last", hello)
assert channel.intact
assert not own & channel._watched, "threads of the lost connection may still use its numbers"
channel.send(Goodbye(0, 1, "said"))
channel.close()
os._exit(0)
"""


@pytest.fixture
def router(tmp_path: Path) -> Iterator["zmq.Socket[bytes]"]:
    context = zmq.Context()
    router = context.socket(zmq.ROUTER)
    router.setsockopt(zmq.RCVTIMEO, 20_000)
    router.bind(f"ipc://{tmp_path}/workers")
    yield router
    context.destroy(linger=0)


@pytest.mark.parametrize(
    "damage",
    [
        "os.closerange(3, 1000)",
        "os.close(channel.fd)",
        "os.dup2(0, channel.fd)",
        "[os.close(fd) for fd in own]",
    ],
    ids=["all", "its own", "replaced", "those watched"],
)
def test_a_process_speaks_again_after_it_has_lost_its_connection(
    router: "zmq.Socket[bytes]", tmp_path: Path, damage: str
) -> None:
    endpoint = f"ipc://{tmp_path}/workers"
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, endpoint, damage], stdin=subprocess.PIPE, env=os.environ
    ) as process:
        name, _ = router.recv_multipart()
        router.send_multipart([name, encode(Shutdown(1, graceful=True, grace_seconds=1.0))])
        process.communicate(b"\n", timeout=20)
    assert process.returncode == 0
    heard = [router.recv_multipart() for _ in range(2)]
    assert {name for name, _ in heard} == {b"0:1:last"}
    hello, goodbye = (decode_for_manager(frame) for _, frame in heard)
    assert isinstance(hello, Hello)
    assert goodbye == Goodbye(0, 1, "said")
