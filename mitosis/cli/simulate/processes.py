"""Simulates several policies on one workload, as many at once as there are cores.

Each policy has a process of its own, forked so that the workload is not copied. The processes end with the
command: also when it is interrupted or killed.
"""

import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess

from mitosis.contracts.errors import MitosisError
from mitosis.scheduling.policy import Policy
from mitosis.scheduling.simulation.result import Result, result_of
from mitosis.scheduling.simulation.simulator import Simulator
from mitosis.scheduling.simulation.synthetic import DAY
from mitosis.scheduling.simulation.workload import Workload
from mitosis.worker.linux import die_with_parent

LEAST_HOST_DAYS = 20
"""A smaller simulation takes less time than a process saves."""


def simulated(workload: Workload, policies: Mapping[str, Policy]) -> Mapping[str, Result]:
    """Return what each policy comes to, in their order."""
    cores = len(os.sched_getaffinity(0))
    host_days = len(workload.hosts) * workload.until / DAY
    if min(cores, len(policies)) < 2 or host_days < LEAST_HOST_DAYS:
        return {name: _result(workload, policy) for name, policy in policies.items()}
    found = _Processes(workload, policies).run(cores)
    return {name: found[name] for name in policies}


def _result(workload: Workload, policy: Policy) -> Result:
    return result_of(workload, Simulator(workload, policy).run())


class _Processes:
    def __init__(self, workload: Workload, policies: Mapping[str, Policy]) -> None:
        self._workload = workload
        self._policies = policies
        self._running: dict[Connection, tuple[str, ForkProcess]] = {}

    def run(self, at_once: int) -> Mapping[str, Result]:
        left, found = list(self._policies), dict[str, Result]()
        try:
            while left or self._running:
                while left and len(self._running) < at_once:
                    self._start(left.pop(0))
                for reader in wait(list(self._running)):
                    assert isinstance(reader, Connection)  # noqa: S101 - only such were given
                    name, result = self._received(reader)
                    found[name] = result
        finally:
            for _, process in self._running.values():
                process.kill()
                process.join()
        return found

    def _start(self, name: str) -> None:
        context = get_context("fork")
        reader, writer = context.Pipe(duplex=False)
        arguments = (os.getpid(), writer, self._workload, self._policies[name])
        process = context.Process(target=_send_result, args=arguments, daemon=True)
        with _interrupts_held():
            process.start()
            self._running[reader] = name, process
        writer.close()

    def _received(self, reader: Connection) -> tuple[str, Result]:
        name, process = self._running[reader]
        try:
            result = reader.recv()
        except EOFError:
            process.join()
            raise MitosisError(_ended(name, process.exitcode)) from None
        process.join()
        del self._running[reader]
        assert isinstance(result, Result)  # noqa: S101 - see _send_result
        return name, result


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Let Ctrl-C wait: Python drops an exception that is raised in a callback of ``os.register_at_fork``."""
    came: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    for number in came[:1]:
        signal.raise_signal(number)


def _send_result(parent: int, writer: Connection, workload: Workload, policy: Policy) -> None:
    """Simulate in a process of its own. The terminal interrupts the command, which ends this process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    die_with_parent(parent, signal.SIGKILL)
    writer.send(_result(workload, policy))


def _ended(name: str, status: int | None) -> str:
    if status is not None and status < 0:
        return f"the process that simulated {name} was ended by {signal.Signals(-status).name}"
    return f"the process that simulated {name} ended with exit status {status}"
