"""The zygote as parent and guardian: pins, deaths, leftovers, imports, and the end of everything."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mitosis.contracts.outcome import ExitKind, ExitReason
from mitosis.ipc.messages import Hello, Shutdown
from mitosis.worker.process_tree import below, process_parents
from mitosis.worker.zygote import EXIT_IMPORT_FAILED
from mitosis.worker.zygote_protocol import (
    Exited,
    ImportFailed,
    KillWorker,
    Ready,
    Spawn,
    Spawned,
    SpawnFailed,
)
from tests.support.checkout import ROOT
from tests.support.waiting import wait_until
from tests.support.worker_host import PATIENCE_SECONDS, WorkerHost, gone, is_over, worker_host

CORES = tuple(sorted(os.sched_getaffinity(0)))
READ_CPUS = ["grep", "Cpus_allowed_list", "/proc/self/status"]


@pytest.fixture
def host(tmp_path: Path) -> Iterator[WorkerHost]:
    with worker_host(tmp_path) as host:
        yield host


def daemons(host: WorkerHost, note: Path, slot: int = 0) -> set[int]:
    """Let the worker run a command with a child, a child in its own session, and a daemon."""
    script = (
        f"trap '' TERM; sleep 600 & echo $! >> {note};"
        f"setsid sh -c 'trap \"\" TERM HUP; echo $$ >> {note}; sleep 600' &"
        f"(setsid sh -c 'echo $$ >> {note}; sleep 600' &);"
        f"echo $$ >> {note}; wait"
    )
    host.submit({"command": ["sh", "-c", script]}, slot=slot)
    wait_until(lambda: note.exists() and note.read_text().count("\n") == 4)
    return {int(line) for line in note.read_text().split()}


# --- pins -----------------------------------------------------------------------------------------


@pytest.mark.spec("S002-236", "S002-239", "S002-243")
@pytest.mark.parametrize("cpus", [None, CORES[:1], CORES[-1:], CORES])
def test_a_worker_is_pinned_says_what_it_got_and_so_are_its_commands(
    host: WorkerHost, cpus: tuple[int, ...] | None
) -> None:
    expected = cpus or CORES
    hello = host.spawn(cpus=cpus)
    assert hello.cpus == expected
    threads = Path(f"/proc/{hello.pid}/task").iterdir()
    assert {tuple(sorted(os.sched_getaffinity(int(t.name)))) for t in threads} == {expected}
    report, detail = host.run(command=READ_CPUS)
    assert _cpu_list(detail["stdout"].split()[1]) == expected
    assert detail["cpus"] == list(expected)
    assert report.outcome == "succeeded"


@pytest.mark.spec("S002-249")
def test_the_next_worker_of_a_slot_is_pinned_again(host: WorkerHost) -> None:
    for _ in range(2):
        hello = host.spawn(cpus=CORES[:1])
        assert hello.cpus == CORES[:1]
        host.worker_kill(signal.SIGKILL)
        host.hear(Exited)
    assert host.spawn().cpus == CORES  # and the zygote itself is not


def test_a_core_that_does_not_exist_is_refused(host: WorkerHost) -> None:
    host.say(Spawn(0, 1, (1000,)))
    refused = host.hear(SpawnFailed)
    assert (refused.slot, refused.generation) == (0, 1)
    assert "CPU set (1000,)" in refused.message
    host.spawn()


def _cpu_list(text: str) -> tuple[int, ...]:
    """Source: proc_pid_status(5), the list format of cpuset(7)."""
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        found.extend(range(int(first), int(last or first) + 1))
    return tuple(found)


# --- deaths ---------------------------------------------------------------------------------------


@pytest.mark.spec("S000-66", "C-19")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM])
def test_a_killed_worker_is_reported_when_nothing_of_its_tree_is_left(
    host: WorkerHost, tmp_path: Path, number: signal.Signals
) -> None:
    host.spawn()
    pids = daemons(host, tmp_path / "note")
    host.worker_kill(number)
    exited = host.hear(Exited)
    assert exited.pid == host.worker_pid
    reason = ExitReason.from_wait_status(exited.wait_status)
    assert (reason.kind, reason.number) == (ExitKind.SIGNAL, number)
    assert [pid for pid in pids | {exited.pid} if not gone(pid)] == []
    if number is not signal.SIGTERM:  # on SIGTERM it cleans up itself
        assert exited.leftovers >= len(pids)


def test_last_words_of_any_length_fit_into_a_packet(tmp_path: Path) -> None:
    with worker_host(tmp_path, output_tail_bytes=1_000_000) as host:
        host.spawn()
        noise = "import os; os.write(2, b'\\xff' * 500_000); os._exit(9)"
        host.submit({"handler": "builtins:exec", "arguments": [noise]})
        assert 1_000 < len(host.hear(Exited).stderr_tail) <= 16 * 1024


def test_kill_worker_takes_the_whole_tree_and_no_other_worker(
    host: WorkerHost, tmp_path: Path
) -> None:
    host.say(Spawn(0, 1))
    first = host.receive(Hello)
    host.generation = 1
    host.say(Spawn(1, 1))
    second = host.receive(Hello)
    mine = daemons(host, tmp_path / "mine", slot=0)
    others = daemons(host, tmp_path / "others", slot=1)
    host.say(KillWorker(0, 1))
    exited = host.hear(Exited)
    assert (exited.slot, exited.pid, exited.wait_status) == (0, first.pid, signal.SIGKILL)
    assert all(gone(pid) for pid in mine)
    assert not any(gone(pid) for pid in others | {second.pid})


def test_killing_a_worker_that_is_not_there_is_nothing(host: WorkerHost) -> None:
    host.say(KillWorker(5, 1))
    host.spawn()


def test_an_occupied_slot_is_refused(host: WorkerHost) -> None:
    host.spawn(slot=0)
    host.say(Spawn(0, 2))
    assert "still has a worker" in host.hear(SpawnFailed).message


def test_a_worker_without_a_descriptor_is_not_started_and_leaves_no_process(tmp_path: Path) -> None:
    setup = {"handler_modules": ("tests.support.no_descriptors",), "python_path": (str(ROOT),)}
    with worker_host(tmp_path, **setup, environment={"NO_DESCRIPTOR_IN": "zygote"}) as host:
        host.say(Spawn(0, 1, None))
        assert "Too many open files" in host.hear(SpawnFailed).message
        assert below(host.zygote.pid, process_parents()) == set()
        host.generation = 1
        host.spawn()


def test_many_workers_die_and_come_back(host: WorkerHost) -> None:
    for generation in (1, 2):
        for slot in range(12):
            host.say(Spawn(slot, generation))
        pids = {host.hear(Spawned).pid for _ in range(12)}
        assert {host.receive(Hello).pid for _ in range(12)} == pids
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        assert {host.hear(Exited).pid for _ in range(12)} == pids


def test_the_resources_of_a_worker_are_measured(host: WorkerHost) -> None:
    host.spawn()
    host.order(Shutdown, True)
    usage = host.expect_goodbye().usage
    assert usage.max_rss_bytes > 1_000_000


# --- the end of everything ------------------------------------------------------------------------


def test_when_the_agent_lets_go_everything_dies(tmp_path: Path) -> None:
    with worker_host(tmp_path) as host:
        host.spawn()
        pids = daemons(host, tmp_path / "note") | {host.worker_pid, host.zygote.pid}
        assert host.close() == 0
        assert [pid for pid in pids if not gone(pid)] == []


def test_when_the_agent_is_killed_everything_dies(tmp_path: Path) -> None:
    note = tmp_path / "pids"
    code = (
        "import sys, signal; from pathlib import Path; sys.path.insert(0, sys.argv[3]);"
        "from tests.support.worker_host import WorkerHost;"
        "from tests.integration.worker.test_zygote import daemons;"
        "host = WorkerHost(Path(sys.argv[1])); host.spawn();"
        "pids = daemons(host, Path(sys.argv[2])) | {host.worker_pid, host.zygote.pid};"
        "print(*pids, flush=True); signal.pause()"
    )
    agent = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path), str(note), str(ROOT)], stdout=subprocess.PIPE
    )
    assert agent.stdout is not None
    with agent.stdout:
        pids = [int(word) for word in agent.stdout.readline().split()]
        assert len(pids) == 6
        agent.kill()
        agent.wait()
    wait_until(lambda: all(map(is_over, pids)))


def test_when_the_zygote_is_killed_workers_end_with_all_they_started(
    host: WorkerHost, tmp_path: Path
) -> None:
    host.spawn()
    pids = daemons(host, tmp_path / "note") | {host.worker_pid}
    host.zygote.kill()
    wait_until(lambda: all(map(is_over, pids)))


def test_when_the_zygote_is_killed_a_worker_with_a_handler_ends_too(host: WorkerHost) -> None:
    host.spawn()
    host.submit({"handler": "time:sleep", "arguments": [600]})
    host.started()
    host.zygote.kill()
    wait_until(lambda: is_over(host.worker_pid))


def test_sigterm_ends_the_zygote_and_everything(host: WorkerHost, tmp_path: Path) -> None:
    host.spawn()
    pids = daemons(host, tmp_path / "note") | {host.worker_pid}
    host.zygote.terminate()
    assert host.zygote.wait(PATIENCE_SECONDS) == 0
    assert [pid for pid in pids if not gone(pid)] == []


# --- imports --------------------------------------------------------------------------------------


def test_a_module_that_cannot_be_imported_is_named_and_nothing_loops(tmp_path: Path) -> None:
    modules = ("math", "tests.support.broken_module")
    with worker_host(tmp_path, handler_modules=modules, python_path=(str(ROOT),)) as host:
        failed = host.hear(ImportFailed)
        assert failed.module == "tests.support.broken_module"
        assert failed.message == "RuntimeError: the licence server is not there"
        assert "broken_module.py" in failed.traceback
        assert host.zygote.wait(PATIENCE_SECONDS) == EXIT_IMPORT_FAILED


def test_handlers_are_imported_once_and_forked(tmp_path: Path) -> None:
    handlers = tmp_path / "counted.py"
    handlers.write_text(f"open('{tmp_path}/count', 'a').write('x')\ndef f(): return 1\n")
    with worker_host(tmp_path, handler_modules=("counted",), python_path=(str(tmp_path),)) as host:
        assert host.hear(Ready).forks
        for slot in range(3):
            host.spawn(slot)
            host.submit({"handler": "counted:f"}, slot=slot)
            host.finished()
    assert (tmp_path / "count").read_text() == "x"


def test_forked_workers_draw_different_random_numbers(tmp_path: Path) -> None:
    numpy = tmp_path / "numpy"  # the name and the one call that matter
    numpy.mkdir()
    (numpy / "__init__.py").touch()
    (numpy / "random.py").write_text(
        "import random as _r\n_state = _r.Random(1)\nseed = _state.seed\nrandom = _state.random\n"
    )
    modules = ("numpy.random", "random")
    drawn = set()
    with worker_host(tmp_path, handler_modules=modules, python_path=(str(tmp_path),)) as host:
        for slot in range(3):
            host.spawn(slot)
            host.submit(*[{"handler": f"{name}:random"} for name in modules], slot=slot)
            drawn |= {host.detail(report)["result"] for report in host.finished(2)}
    assert len(drawn) == 6


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        ("tests.support.threaded_module", "started 1 threads"),
        ("tests.support.context_module", "made a ZeroMQ context"),
    ],
)
def test_a_module_that_must_not_be_forked_gets_workers_of_their_own(
    tmp_path: Path, module: str, reason: str
) -> None:
    with worker_host(tmp_path, handler_modules=(module,), python_path=(str(ROOT),)) as host:
        ready = host.hear(Ready)
        assert not ready.forks
        assert reason in (ready.no_fork_reason or "")
        hello = host.spawn(cpus=CORES[:1])
        assert hello.cpus == CORES[:1]
        assert below(host.zygote.pid, process_parents()) == {hello.pid}
        report, detail = host.run(handler="tests.support.threaded_module:thread_is_alive")
        assert (report.outcome, detail["result"]) == ("succeeded", True)
        assert host.run(command=["true"])[0].outcome == "succeeded"
        pids = daemons(host, tmp_path / "note")
        host.worker_kill(signal.SIGKILL)
        exited = host.hear(Exited)
        assert (exited.pid, exited.wait_status) == (hello.pid, signal.SIGKILL)
        assert all(gone(pid) for pid in pids)
        host.spawn()


def test_a_zygote_whose_agent_goes_away_while_it_imports_ends(tmp_path: Path) -> None:
    slow = tmp_path / "slow_module.py"
    slow.write_text(
        f"import time, pathlib\npathlib.Path('{tmp_path}/begun').touch()\ntime.sleep(600)\n"
    )
    modules = ("slow_module",)
    with worker_host(tmp_path, handler_modules=modules, python_path=(str(tmp_path),)) as host:
        wait_until((tmp_path / "begun").exists)
        host.close()  # waits for its end


@pytest.mark.parametrize("modules", [(), ("no_such_module",)])
def test_a_lease_that_ends_while_its_zygote_starts_leaves_no_traceback(
    modules: tuple[str, ...], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with worker_host(tmp_path, handler_modules=modules) as host:
        status = host.close()
    assert status == (EXIT_IMPORT_FAILED if modules else 0)
    assert capfd.readouterr().err == ""
