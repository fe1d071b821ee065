"""Policies are simulated in processes of their own: the same figures, and none outlives the command."""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from mitosis.cli.simulate import processes
from mitosis.contracts.errors import MitosisError
from mitosis.scheduling.policy import Policy
from mitosis.scheduling.simulation.accounts import Accounts
from mitosis.scheduling.simulation.comparison import policies
from mitosis.scheduling.simulation.result import Result
from mitosis.scheduling.simulation.simulator import Simulator
from mitosis.scheduling.simulation.synthetic import Mix, mixed
from tests.support.processes import descendants, living
from tests.support.waiting import wait_until

SMALL = Mix(hosts=6, days=0.5, load=0.3, seed=3)
TIMED = {"decide_ms", "longest_decide_ms"}
POLICIES = {name.value: policy for name, policy in policies(Policy()).items()}


def in_own_process(check: Callable[[pytest.MonkeyPatch], None]) -> None:
    """Run a check where no other thread is: what one of them has locked stays locked in a forked process."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
        process.submit(_run, check).result()


def _run(check: Callable[[pytest.MonkeyPatch], None]) -> None:
    assert threading.active_count() == 1
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
        monkeypatch.setattr(processes, "LEAST_HOST_DAYS", 3)
        check(monkeypatch)


def figures(results: Mapping[str, Result]) -> Mapping[str, Mapping[str, object]]:
    return {
        policy: {name: value for name, value in result.figures().items() if name not in TIMED}
        for policy, result in results.items()
    }


def compare(monkeypatch: pytest.MonkeyPatch) -> None:
    workload = mixed(SMALL)
    mine = os.getpid()
    run, ran_here = Simulator.run, list[int]()

    def noted(simulator: Simulator) -> Accounts:
        ran_here.append(os.getpid())
        return run(simulator)

    monkeypatch.setattr(Simulator, "run", noted)
    found = processes.simulated(workload, POLICIES)
    assert ran_here == []
    assert list(found) == list(POLICIES)
    monkeypatch.setattr(processes, "LEAST_HOST_DAYS", 4)
    assert figures(found) == figures(processes.simulated(workload, POLICIES))
    assert ran_here == [mine] * len(POLICIES)


def test_each_policy_comes_to_the_same_as_in_one_process() -> None:
    in_own_process(compare)


def kill_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(simulator: Simulator) -> None:
        number = signal.SIGKILL if simulator.facts.snapshot.policy == POLICIES["fifo"] else 0
        os.kill(os.getpid(), number)
        signal.pause()

    monkeypatch.setattr(Simulator, "run", run)
    chosen = {name: POLICIES[name] for name in ("rules", "fifo")}
    with pytest.raises(MitosisError, match="that simulated fifo was ended by SIGKILL"):
        processes.simulated(mixed(SMALL), chosen)
    assert multiprocessing.active_children() == []


def test_a_process_that_is_killed_is_named_and_the_others_end() -> None:
    in_own_process(kill_one)


def interrupt_once() -> None:
    """What Ctrl-C does in the middle of a fork."""
    if interrupts:
        interrupts.clear()
        os.kill(os.getpid(), signal.SIGINT)


interrupts: list[bool] = []
os.register_at_fork(after_in_parent=interrupt_once)


def interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Simulator, "run", lambda _: sys.exit(0))
    interrupts.append(True)
    with pytest.raises(KeyboardInterrupt):
        processes.simulated(mixed(SMALL), POLICIES)
    assert multiprocessing.active_children() == []


def test_an_interrupt_in_the_middle_of_a_fork_is_not_lost() -> None:
    in_own_process(interrupt)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_they_end_with_the_command(number: signal.Signals, tmp_path: Path) -> None:
    mitosis = Path(sys.executable).with_name("mitosis")
    lines = [
        '{"kind": "workload", "until": 1e12}',
        '{"kind": "host", "name": "h", "user_groups": ["team"]}',
        '{"kind": "group", "name": "g", "user_group": "team", "at": 0}',
        '{"kind": "tasks", "group": "g", "at": 0, "count": 10000000, "mean_seconds": 1}',
    ]
    workload = tmp_path / "w.jsonl"
    workload.write_text("\n".join(lines))
    words = ("simulate", "--workload", str(workload), "--policy", "rules", "--policy", "fifo")
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    with subprocess.Popen(
        [mitosis, *words], stderr=subprocess.PIPE, cwd=tmp_path, env=environment, text=True
    ) as command:
        try:
            found = wait_until(lambda: descendants(command.pid) or command.poll() is not None)
            assert isinstance(found, list), "it ended before it began"
            command.send_signal(number)
            _, errors = command.communicate(timeout=60)
        finally:
            command.kill()
    wait_until(lambda: not living(found))
    assert "Traceback" not in errors
