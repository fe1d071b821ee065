"""The agent's side of a zygote and its workers, bare: a real ROUTER, a real process, real messages."""

import os
import socket
import subprocess
import sys
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import zmq

from mitosis.contracts.attempt import AttemptKey
from mitosis.contracts.wire import TaskReport
from mitosis.ipc.codec import decode_for_manager, encode
from mitosis.ipc.messages import (
    Goodbye,
    Hello,
    ManagerToWorker,
    RunTask,
    RunTasks,
    TasksFinished,
    TaskStarted,
    WorkerToManager,
)
from mitosis.worker import zygote_protocol as z
from tests.support.reports import decoded

M = TypeVar("M", bound=WorkerToManager)
P = TypeVar("P", bound=z.ZygoteToAgent)

GROUP_NUMBER = 7
PATIENCE_SECONDS = 20.0


class WorkerHost:
    """One lease session without an agent."""

    def __init__(self, folder: Path, **setup: Any) -> None:
        self.folder = folder
        self.endpoint = f"ipc://{folder}/workers"
        self._context = zmq.Context()
        self.router = self._context.socket(zmq.ROUTER)
        self.router.setsockopt(zmq.ROUTER_MANDATORY, 1)
        self.router.bind(self.endpoint)
        self.setup = z.Setup(
            manager_id="manager-1",
            endpoint=self.endpoint,
            task_group_id="11111111-1111-1111-1111-111111111111",
            task_group_number=GROUP_NUMBER,
            task_group_name="campaign",
            group_name="lab",
            scratch_folder=str(folder / "scratch"),
            run_folder=str(folder),
            **setup,
        )
        self.inbox: defaultdict[type, deque[Any]] = defaultdict(deque)
        self.packets: deque[z.ZygoteToAgent] = deque()
        self.generation = self.worker_pid = 0
        self._next_message = 0
        self.zygote = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        self.socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(PATIENCE_SECONDS)
        launcher = (
            "import os, sys; os.dup2(int(sys.argv[1]), 3); os.set_inheritable(3, True);"
            "os.execv(sys.executable, [sys.executable, '-P', '-m', 'mitosis.worker', 'zygote'])"
        )
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", launcher, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
            )
        self.say(self.setup)
        return process

    # --- zygote ---------------------------------------------------------------------------------

    def say(self, packet: z.AgentToZygote) -> None:
        self.socket.send(z.encode(packet))

    def hear(self, kind: type[P]) -> P:
        """The next packet of this kind; others are kept."""
        while True:
            for packet in self.packets:
                if isinstance(packet, kind):
                    self.packets.remove(packet)
                    return packet
            data = self.socket.recv(z.MAX_PACKET_BYTES)
            assert data, "the zygote closed its socket"
            self.packets.append(z.decode_for_agent(data))

    def spawn(self, slot: int = 0, cpus: tuple[int, ...] | None = None) -> Hello:
        self.generation += 1
        self.say(z.Spawn(slot, self.generation, cpus))
        pid = self.hear(z.Spawned).pid
        while (hello := self.receive(Hello)).pid != pid:  # the second one of a worker before
            pass
        self.worker_pid = pid
        return hello

    # --- worker ---------------------------------------------------------------------------------

    def send(self, message: ManagerToWorker, slot: int = 0) -> None:
        identity = f"{slot}:{self.generation}".encode()
        self.router.send_multipart([identity, encode(message)])

    def order(self, kind: Callable[..., ManagerToWorker], *args: Any, **facts: Any) -> int:
        """Send a control message with a fresh id; the id is returned."""
        self._next_message += 1
        self.send(kind(self._next_message, *args, **facts))
        return self._next_message

    def receive(self, kind: type[M]) -> M:
        """The next message of this kind; others are kept."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not self.inbox[kind]:
            left = max(0.0, deadline - time.monotonic())
            assert self.router.poll(int(left * 1000)), f"no {kind.__name__}: {self.inbox}"
            _, frame = self.router.recv_multipart()
            message = decode_for_manager(frame)
            self.inbox[type(message)].append(message)
        found: M = self.inbox[kind].popleft()
        return found

    def submit(self, *specs: dict[str, Any], first_id: int = 1, slot: int = 0) -> None:
        tasks = [
            RunTask(AttemptKey(first_id + i, 1), msgspec.json.encode(spec))
            for i, spec in enumerate(specs)
        ]
        self.inbox[TaskStarted].clear()  # of tasks that have ended
        self.send(RunTasks(tuple(tasks)), slot)

    def started(self) -> TaskStarted:
        return self.receive(TaskStarted)

    def finished(self, count: int = 1) -> list[TaskReport]:
        """The next reports, decoded as the API decodes them."""
        found: list[TaskReport] = []
        while len(found) < count:
            found.extend(map(decoded, self.receive(TasksFinished).tasks))
        return found

    def run(self, **spec: Any) -> tuple[TaskReport, dict[str, Any]]:
        """One task to its end: the report, and its detail as a dict."""
        self.submit(spec)
        (report,) = self.finished()
        return report, self.detail(report)

    def detail(self, report: TaskReport) -> dict[str, Any]:
        found: dict[str, Any] = msgspec.json.decode(report.detail)
        return found

    def memory_bytes(self) -> int:
        """The highest resident size that the last worker ever had."""
        status = Path(f"/proc/{self.worker_pid}/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) * 1024

    def worker_kill(self, number: int) -> None:
        os.kill(self.worker_pid, number)

    def expect_goodbye(self) -> z.Exited:
        self.receive(Goodbye)
        return self.hear(z.Exited)

    def close(self) -> int:
        """Let go of the zygote, as a dying agent would; its exit status. Idempotent."""
        if self._context.closed:
            return self.zygote.returncode
        self.socket.shutdown(socket.SHUT_RDWR)  # EOF, even if another process inherited our end
        self.socket.close()
        status = self.zygote.wait(PATIENCE_SECONDS)
        self._context.destroy(linger=0)
        return status


@contextmanager
def worker_host(folder: Path, **setup: Any) -> Iterator[WorkerHost]:
    host = WorkerHost(folder, **setup)
    try:
        yield host
    finally:
        host.close()


def gone(pid: int) -> bool:
    """No process has this pid, not even a zombie."""
    return not Path(f"/proc/{pid}").exists()


def is_over(pid: int) -> bool:
    """Gone, or a zombie that waits for an init that is not ours."""
    try:
        return ") Z " in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return True
