"""The hosts of a campaign: `mitosis agent` processes, each behind its own wires and in a bounded pids cgroup.

Stands for the service manager of each machine: an agent that ends is started again, but for exit status 78.
"""

import contextlib
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

import msgspec
import psutil

from manager_agent.process import EXIT_DO_NOT_RESTART
from manager_agent.registration import read_credentials
from tests.chaos.mixed.wires import Refusal, RefusingWire
from tests.support.processes import living
from tests.support.program import MITOSIS, clean_environment
from tests.support.servers import LoopThread
from tests.support.waiting import wait_until

PIDS = Path("/sys/fs/cgroup/pids")
MOST_PROCESSES = 1000
"""Of one host at any time: the machine is never in danger."""
STARTED_SECONDS = 90.0


@dataclass
class PidsGroup:
    """The cgroup of one host; None of it where cgroups cannot be made."""

    folder: Path

    @classmethod
    def make(cls, name: str) -> "PidsGroup | None":
        """Below the cgroup of this process; version 1 only, since version 2 wants an empty parent."""
        folder = PIDS / name
        try:
            folder.mkdir()
            (folder / "pids.max").write_text(str(MOST_PROCESSES))
        except OSError:
            return None
        return cls(folder)

    def fill(self) -> None:
        """Let no process of it make another process or thread, also in the place of one that ends."""
        (self.folder / "pids.max").write_text("1")

    def free(self) -> None:
        (self.folder / "pids.max").write_text(str(MOST_PROCESSES))

    def remove(self) -> None:
        for folder in (*self.folder.iterdir(), self.folder):
            if folder.is_dir():
                with contextlib.suppress(OSError):
                    folder.rmdir()


@dataclass
class MixedHost:
    """One host; its agent runs between :meth:`begin` and :meth:`end`."""

    name: str
    folder: Path
    environment: Mapping[str, str]
    api: RefusingWire
    temporal: RefusingWire
    pids: PidsGroup | None
    exits: list[int] = field(default_factory=list)
    """Statuses of the agents that ended by themselves."""

    def __post_init__(self) -> None:
        self.folder.mkdir(exist_ok=True)
        self._process: subprocess.Popen[bytes] | None = None
        self._wanted = False
        self._lock = threading.RLock()
        self._keeper = threading.Thread(target=self._keep, name=self.name)
        self._over = threading.Event()

    # --- the service manager --------------------------------------------------------------------

    def begin(self) -> None:
        """Start the agent, and it again whenever it ends."""
        self.start()
        self._keeper.start()

    def start(self) -> None:
        with self._lock:
            self._wanted = True
            if self._process is None or self._process.poll() is not None:
                self._process = self._spawn()

    def kill(self) -> None:
        """SIGKILL; :meth:`start` starts it again, and nobody else."""
        with self._lock:
            self._wanted = False
            if self._process is not None:
                self._process.kill()
                self._process.wait()

    def ended(self) -> bool:
        """Whether the agent has ended for good (exit status 78)."""
        with self._lock:
            return not self._wanted

    def end(self) -> int:
        """SIGTERM, and wait; the exit status."""
        self._over.set()
        if self._keeper.is_alive():
            self._keeper.join()
        with self._lock:
            self._wanted = False
            if self._process is None:
                return 0
            self._process.send_signal(signal.SIGCONT)
            self._process.terminate()
            try:
                return self._process.wait(90)
            except subprocess.TimeoutExpired:
                self._process.kill()
                return self._process.wait()

    def _keep(self) -> None:
        while not self._over.wait(0.1):
            with self._lock:
                if not self._wanted or self._process is None or self._process.poll() is None:
                    continue
                self.exits.append(self._process.returncode)
                if self._process.returncode == EXIT_DO_NOT_RESTART:
                    self._wanted = False
                else:
                    self._process = self._spawn()

    def _spawn(self) -> "subprocess.Popen[bytes]":
        argv = [*MITOSIS, "agent", "--data-dir", str(self.folder)]
        if (
            self.pids is not None
        ):  # a shell, since code between fork and exec is not safe with threads
            join = f'echo $$ > {self.pids.folder}/cgroup.procs; exec "$@"'
            argv = ["/bin/sh", "-c", join, "sh", *argv]
        with self.log.open("ab") as log:
            return subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=clean_environment(**self.environment),
            )

    # --- what is known of it --------------------------------------------------------------------

    @property
    def log(self) -> Path:
        return self.folder / "agent.log"

    @property
    def state_dir(self) -> Path:
        return self.folder / "agent"

    @property
    def manager_id(self) -> UUID:
        found = wait_until(lambda: read_credentials(self.state_dir), STARTED_SECONDS, self.story)
        assert found is not None
        return found.manager_id

    def in_journal(self) -> int:
        """Records in the journal file, acknowledged or not."""
        try:
            return (self.state_dir / "journal").read_bytes().count(b"MJ01")
        except OSError:
            return 0

    @property
    def token(self) -> str:
        """That of its agent, as of its last start."""
        found = read_credentials(self.state_dir)
        assert found is not None
        return found.token

    def replace_token(self, token: str) -> None:
        path = self.state_dir / "manager.json"
        known = msgspec.json.decode(path.read_bytes())
        path.write_bytes(msgspec.json.encode({**known, "token": token}))

    def agent(self) -> psutil.Process | None:
        with self._lock:
            if self._process is None or self._process.poll() is not None:
                return None
            with contextlib.suppress(psutil.NoSuchProcess):
                return psutil.Process(self._process.pid)
            return None

    def below(self, depth: int) -> list[psutil.Process]:
        """1: the zygotes of the agent; 2: its workers; 3: their commands."""
        agent = self.agent()
        found = [] if agent is None else [agent]
        with contextlib.suppress(psutil.NoSuchProcess):
            for step in range(depth):
                found = [child for parent in found for child in parent.children()]
                if step == 0:
                    found = [one for one in found if "zygote" in one.cmdline()]
            return living(found)
        return []

    def story(self) -> str:
        return f"{self.name}: {self.log.read_text()[-2000:]}"


@contextlib.contextmanager
def paused(host: MixedHost) -> Iterator[None]:
    """The agent process does nothing meanwhile; its workers go on."""
    agent = host.agent()
    if agent is None:
        yield
        return
    with contextlib.suppress(psutil.NoSuchProcess):
        agent.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        with contextlib.suppress(psutil.NoSuchProcess):
            agent.send_signal(signal.SIGCONT)


@contextlib.contextmanager
def cut(wire: RefusingWire, loop: LoopThread) -> Iterator[None]:
    """Nothing gets through meanwhile; cuts may overlap."""
    loop.run(_count_cut(wire, 1))
    try:
        yield
    finally:
        loop.run(_count_cut(wire, -1))


async def _count_cut(wire: RefusingWire, step: int) -> None:
    wire.cuts += step
    if wire.cuts == step == 1:
        wire.cut()
    elif wire.cuts == 0:
        wire.mend()


@contextlib.contextmanager
def dead(host: MixedHost) -> Iterator[None]:
    """The agent is killed, and started again at the end."""
    host.kill()
    try:
        yield
    finally:
        host.start()


@contextlib.contextmanager
def refusing(wire: RefusingWire, refusal: Refusal) -> Iterator[None]:
    wire.refusal = refusal
    try:
        yield
    finally:
        wire.refusal = None


@contextlib.contextmanager
def losing(wire: RefusingWire, paths: Sequence[str]) -> Iterator[None]:
    """The next two answers to each of these calls are lost after their commit."""
    wire.lose_answers.update(dict.fromkeys(paths, 2))
    try:
        yield
    finally:
        wire.lose_answers.clear()


@contextlib.contextmanager
def full(host: MixedHost) -> Iterator[None]:
    """No process of the host can make another one."""
    assert host.pids is not None
    host.pids.fill()
    try:
        yield
    finally:
        host.pids.free()
