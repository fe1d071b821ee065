"""Whatever handlers leave behind, the next task starts in the state in which the first one started."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from mitosis.contracts.outcome import ExitKind, ExitReason
from mitosis.ipc.messages import Goodbye, TaskStarted
from mitosis.worker.zygote_protocol import Exited
from tests.support.checkout import ROOT
from tests.support.examples import examples
from tests.support.leaks import LEAKS, NAMESPACES, PRCTL, UNKNOWN
from tests.support.worker_host import WorkerHost, worker_host

MODULE = "tests.support.leaks"
CAPABILITIES = int(
    Path("/proc/self/status").read_text().split("CapEff:")[1].split()[0], 16
)  # Source: capabilities(7)
MAY_LOWER_NICE, MAY_RAISE_LIMITS = CAPABILITIES >> 23 & 1, CAPABILITIES >> 24 & 1
MAY_UNSHARE = CAPABILITIES >> 21 & 1
MAY_SET_RIGHTS = CAPABILITIES >> 8 & 1
RENEWS = {"thread", "kernel timer", "open files", "oom score", "import hook", *NAMESPACES}
RENEWS |= {"death signal", "dumpable", "timer slack", "subreaper", *PRCTL}
RENEWS |= {"filter of cores", "I/O priority", "memory policy"}
"""What only another process can undo."""
if not MAY_LOWER_NICE:
    RENEWS |= {"nice"}
if not MAY_RAISE_LIMITS:
    RENEWS |= {"hard limit", "16 files", "3 files"}

FEW_FILES = ("16 files", "3 files")
LAST = (
    "python streams",
    "thread",
    "processes of children",
    "another environment",
    "files",
    *FEW_FILES,
)
"""In this order: closed streams have no settings; a thread gets the signals that others block, and cannot
begin where children have other process numbers (clone(2)); the rest hide the mapping from the others, or
leave them no file to open."""
UNCONNECTED = ("processes of children", *FEW_FILES)
"""With one of these, who has closed everything cannot connect again: that needs files and a thread."""
DENIED = UNKNOWN | (set() if MAY_UNSHARE else set(NAMESPACES))
DENIED |= set() if MAY_SET_RIGHTS else {"rights of root"}
DRAWN = sorted(set(LEAKS) - DENIED)
CLOSES = {"closed all", "closed all for long", "replaced all"}
RENEWS |= CLOSES


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerHost]:
    folder = tmp_path_factory.mktemp("host")
    with worker_host(folder, handler_modules=(MODULE,), python_path=(str(ROOT),)) as host:
        host.spawn()
        yield host


@pytest.fixture(scope="module")
def clean(host: WorkerHost) -> dict[str, Any]:
    return probe(host)


def probe(host: WorkerHost) -> dict[str, Any]:
    found: dict[str, Any] = host.run(handler=f"{MODULE}:probe")[1]["result"]
    found["environment"].pop("MITOSIS_WORKER")  # it holds the generation of the process
    found["in C"] = [line for line in found["in C"] if not line.startswith("MITOSIS_WORKER=")]
    return found


def leave(host: WorkerHost, *names: str, **spec: Any) -> str | None:
    """Run a task that leaves these, start a new worker if it ends its own; return the reason."""
    report, detail = host.run(handler=f"{MODULE}:leak", arguments=[list(names)], **spec)
    assert (report.outcome, detail["result"]) == ("succeeded", host.worker_pid), detail
    return renewed(host) if RENEWS & set(names) else None


def renewed(host: WorkerHost) -> str | None:
    """Wait until the worker has ended by itself, and start the next; return the reason."""
    goodbye = host.receive(Goodbye)
    host.hear(Exited)
    host.spawn()
    return goodbye.renewed_for


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name, marks=pytest.mark.skipif(name in DENIED, reason="no right, or unknown here")
        )
        for name in LEAKS
    ],
)
def test_the_next_task_does_not_see_what_a_handler_left(
    host: WorkerHost, clean: dict[str, Any], name: str
) -> None:
    leave(host, name)
    assert probe(host) == clean


@settings(max_examples=examples(8), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    names=st.lists(st.sampled_from(DRAWN), min_size=2, max_size=6, unique=True),
    extra=st.sampled_from([{}, {"LEAK": "0", "PATH": "/bin"}, {"TZ": "Asia/Tokyo"}]),
)
@example(names=["stdout", "overwriting output"], extra={})
@example(names=["thread", "pending", "processes of children"], extra={})
def test_the_next_task_sees_no_combination_of_leaks(
    host: WorkerHost, clean: dict[str, Any], names: list[str], extra: dict[str, str]
) -> None:
    skipped = DENIED.union(UNCONNECTED if CLOSES & set(names) else ())
    names = [name for name in names if name not in skipped]
    names.sort(key=lambda name: LAST.index(name) if name in LAST else -1)
    leave(host, *names, environment=extra)
    assert probe(host) == clean


def test_a_handler_that_changes_nothing_is_not_looked_at_thoroughly(host: WorkerHost) -> None:
    """This look costs ten times the quick one, so what the worker itself does must not bring it."""
    assert host.run(handler=f"{MODULE}:looks_thoroughly")[1]["result"] is False


def test_a_worker_that_is_told_to_end_meanwhile_ends_after_the_handler(host: WorkerHost) -> None:
    host.submit({"handler": f"{MODULE}:delay_an_end"})  # it may end before its start is said
    reason = ExitReason.from_wait_status(host.hear(Exited).wait_status)
    host.spawn()
    assert reason == ExitReason(ExitKind.SIGNAL, signal.SIGTERM)


def test_the_process_is_not_ended_by_a_timer_of_an_earlier_handler(host: WorkerHost) -> None:
    host.run(handler=f"{MODULE}:dump_soon")
    assert host.run(handler="time:sleep", arguments=[0.1])[0].outcome == "succeeded"


def test_a_command_after_a_leak_starts_clean(host: WorkerHost, clean: dict[str, Any]) -> None:
    leave(host, "ignored", "files", "nice", "umask", "no environment", "mask")
    shell = "umask; ulimit -n; nice; grep SigBlk /proc/self/status; echo $HOME"
    printed = host.run(command=["bash", "-c", shell])[1]["stdout"].split()
    fresh = clean["limits"]["7"][0]
    assert printed == [
        f"{clean['umask']:04o}",
        str(fresh),
        str(clean["nice"]),
        "SigBlk:",
        "0" * 16,
        os.environ["HOME"],
    ]


def test_a_task_that_leaves_a_thread_keeps_its_result_and_its_worker_is_renewed(
    host: WorkerHost,
) -> None:
    before = host.worker_pid
    assert leave(host, "thread") == "a task left a thread"
    assert host.run(handler=f"{MODULE}:process_id")[1]["result"] == host.worker_pid != before


@pytest.mark.skipif(os.geteuid() != 0, reason="needs the right to change the user")
def test_another_user_is_never_passed_on(tmp_path: Path) -> None:
    with worker_host(tmp_path) as host:
        host.spawn()
        for handler, arguments in (
            ("os:setegid", [65534]),
            ("os:chroot", ["/proc"]),
            ("os:setgroups", [[1]]),
        ):
            host.run(handler="os:getpid")  # the thorough look of a fresh worker is over
            report, _ = host.run(handler=handler, arguments=arguments)
            assert report.outcome == "succeeded"
            assert renewed(host) is not None


def test_a_command_cannot_change_its_worker(host: WorkerHost, clean: dict[str, Any]) -> None:
    # Enough files for what the worker may still open for this process.
    shell = "prlimit --pid $PPID --nofile=200:200; renice -n 5 -p $PPID; taskset -pc 0 $PPID"
    host.run(command=["sh", "-c", shell])
    left = [] if MAY_RAISE_LIMITS else ["limits"]
    left += [] if MAY_LOWER_NICE else ["priority"]
    if left:
        assert renewed(host) == f"a task left {', '.join(left)}"
    assert probe(host) == clean


@pytest.mark.parametrize("shell", ["choom -p $PPID -n 500", "chrt --batch -p 0 $PPID"])
def test_a_worker_that_a_command_has_changed_for_good_runs_no_other_task(
    host: WorkerHost, clean: dict[str, Any], shell: str
) -> None:
    host.run(command=["sh", "-c", shell])
    assert renewed(host) == "a task left a process attribute"
    assert probe(host) == clean


@pytest.mark.parametrize("spec", [{"command": ["true"]}, {"handler": f"{MODULE}:process_id"}])
def test_a_worker_runs_as_many_tasks_as_the_plan_allows(
    tmp_path: Path, spec: dict[str, Any]
) -> None:
    setup = {"handler_modules": (MODULE,), "python_path": (str(ROOT),)}
    with worker_host(tmp_path, max_tasks_per_worker=3, **setup) as host:
        host.spawn()
        for _ in range(2):
            host.submit(*[spec] * 5)
            assert [report.task_id for report in host.finished(3)] == [1, 2, 3]
            assert renewed(host) == "max_tasks_per_worker is 3"
            assert {started.key.task_id for started in host.inbox[TaskStarted]} <= {1, 2, 3}
            host.inbox[TaskStarted].clear()
