"""The supervisor of one attempt: a process between a worker service and what an executor starts.

It is a subreaper, so it finds every process that the command has started, and ends them all when the service
does: the end of its standard input is the end of the service, however that came.
"""

import os
import select
import stat
import sys
import time
from contextlib import suppress
from typing import NoReturn

import msgspec

from mitosis.contracts.outcome import FailureKind
from mitosis.contracts.task import TaskSpec
from mitosis.executors.messages import Halt, Job, Over, Said, encode, to_supervisor
from mitosis.worker.command import CommandRun, Streams, not_started
from mitosis.worker.exchange import Exchange
from mitosis.worker.linux import become_subreaper
from mitosis.worker.output import PipeOutput
from mitosis.worker.process_tree import kill_all_below
from mitosis.worker.report import Ended

TAIL_BYTES = 8_192
MAX_LINE_BYTES = 65_536
"""Of progress; a longer line is dropped."""
KILL_SECONDS = 5.0

_said = msgspec.json.Decoder(Said)


class ProgressFile:
    """A FIFO in which the command says how far it is: `0.5 STAGE MESSAGE`, or an object of JSON."""

    def __init__(self, path: str) -> None:
        os.mkfifo(path, stat.S_IRUSR | stat.S_IWUSR)
        self.fd = os.open(
            path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC
        )  # a reader is always there
        self._rest = b""

    def read(self) -> list[Said]:
        """Return what was said since the last call; other lines are dropped."""
        while True:
            with suppress(BlockingIOError):
                self._rest += os.read(self.fd, MAX_LINE_BYTES)
                if len(self._rest) <= MAX_LINE_BYTES:
                    continue
            break
        *lines, self._rest = self._rest.split(b"\n")
        if len(self._rest) > MAX_LINE_BYTES:
            self._rest = b""
        return [said for line in lines if (said := _parsed(line)) is not None]


def _parsed(line: bytes) -> Said | None:
    if line.lstrip().startswith(b"{"):
        with suppress(msgspec.MsgspecError, UnicodeDecodeError):
            return _said.decode(b'{"type":"said",' + line.strip()[1:])
        return None
    fraction, stage, message = [*line.decode("utf-8", "replace").split(None, 2), "", "", ""][:3]
    with suppress(ValueError):
        return Said(float(fraction), stage or None, message or None)
    return None


class Supervisor:
    """Runs one job and passes on what it says."""

    def __init__(self, job: Job, orders: bytes) -> None:
        """Start nothing yet; ``orders`` has come after the job."""
        self._job = job
        self._orders = orders
        self._stdout, self._stderr = PipeOutput(TAIL_BYTES), PipeOutput(TAIL_BYTES)
        self._progress = ProgressFile(job.progress_file)
        self._poll = select.poll()
        for fd in (0, self._stdout.read_fd, self._stderr.read_fd, self._progress.fd):
            self._poll.register(fd, select.POLLIN)

    def run(self) -> Ended:
        """Return how it ended, when no process of it is left."""
        null = os.open(os.devnull, os.O_RDONLY)
        streams = Streams(null, self._stdout, self._stderr)
        with Exchange(self._job.input.encode(), streams) as exchange:
            ended = self._run(exchange.streams)
            exchange.conclude(ended)
        self._pass_on()
        return ended

    def _run(self, streams: Streams) -> Ended:
        job = self._job
        spec = TaskSpec(command=job.argv, working_directory=job.folder)
        try:
            run = CommandRun(spec, job.environment, job.folder, streams)
        except (OSError, ValueError) as error:
            return not_started(spec, job.environment, error)
        for fd in run.fds():
            self._poll.register(fd, select.POLLIN)
        fds = run.fds()
        while run.ended is None:
            for order in self._taken_orders():
                run.stop(FailureKind.CANCELLED, "cancelled", order.grace_seconds)
            run.step()
            if not run.fds() and fds:
                for fd in fds:
                    self._poll.unregister(fd)
                fds = ()
            if run.ended is None:
                self._wait(run)
        return run.ended

    def _wait(self, run: CommandRun) -> None:
        at = run.wakes_at()
        wait = None if at is None else max(0.0, at - time.monotonic()) * 1000
        for fd, _ in self._poll.poll(wait):
            if fd == 0:
                self._read_orders()
        self._stdout.read()
        self._stderr.read()
        self._pass_on()

    def _read_orders(self) -> None:
        chunk = os.read(0, MAX_LINE_BYTES)
        if not chunk:
            end_all()
        self._orders += chunk

    def _taken_orders(self) -> list[Halt]:
        *lines, self._orders = self._orders.split(b"\n")
        orders = [to_supervisor.decode(line) for line in lines]
        return [order for order in orders if isinstance(order, Halt)]

    def _pass_on(self) -> None:
        for said in self._progress.read():
            say(said)


def say(message: Said | Over) -> None:
    """Write a line for the service; without one nothing is left to do."""
    line, position = encode(message) + b"\n", 0
    try:
        while position < len(line):
            position += os.write(1, line[position:])
    except BrokenPipeError:
        end_all()


def end_all() -> NoReturn:
    """Kill every process of the attempt, and end."""
    kill_all_below(KILL_SECONDS)
    os._exit(1)


def main() -> None:
    """Run the job of the first line of standard input."""
    os.setsid()
    become_subreaper()
    received = b""
    while b"\n" not in received:
        chunk = os.read(0, 1_000_000)
        if not chunk:
            sys.exit(1)
        received += chunk
    line, _, rest = received.partition(b"\n")
    job = to_supervisor.decode(line)
    assert isinstance(job, Job)  # noqa: S101 - the first line of our own service
    try:
        ended = Supervisor(job, rest).run()
    except BaseException:
        kill_all_below(KILL_SECONDS)
        raise
    say(Over(ended))


if __name__ == "__main__":
    main()
