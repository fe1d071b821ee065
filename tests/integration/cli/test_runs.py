"""`mitosis job start | watch | runs | tasks | cancel | rerun`, against the real API and PostgreSQL."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from mitosis.cli.exit import ExitStatus
from mitosis.client.sync import SyncClient
from mitosis.contracts.wire import Outcome
from mitosis.store.users.accounts import add_member, create_user
from tests.support.cli_stack import CliStack, cli_stack
from tests.support.command import Ran, mitosis
from tests.support.servers import LoopThread

OK, BAD = Outcome.SUCCEEDED, Outcome.FAILED
ETL = """\
name: etl
parameters: {n: {type: integer}, word: {}}
steps:
  a: {count: "{{ params.n }}", command: [echo, "{{ params.word }}"]}
  b: {after: a, command: [echo, b]}
"""


@pytest.fixture
def stack(
    server_loop: LoopThread,
    database: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[CliStack]:
    with cli_stack(server_loop, database, tmp_path / "data") as running:
        running.use(monkeypatch)
        monkeypatch.chdir(tmp_path)
        (tmp_path / "etl.yaml").write_text(ETL)
        yield running


def done(*words: str, status: int = ExitStatus.OK) -> Ran:
    ran = mitosis(*words)
    assert ran.status == status, ran.err
    return ran


@pytest.mark.spec("S001-07")
def test_a_failed_run_is_watched_to_its_end_and_only_what_failed_runs_again(
    stack: CliStack,
) -> None:
    done("job", "define", "etl.yaml")
    given = ("-p", "n=2", "-p", "word=7", "--name", "nightly", "--label", "trial")
    assert done("job", "start", "etl", *given, "--dry-run").out.endswith(
        "2 steps, 3 tasks; 1 edges between steps, 0 between tasks\n"
    )
    assert "no runs" in done("job", "runs").out, "a dry run starts nothing"
    first = done("job", "start", "etl", *given, "--quiet").out.strip()
    shown = done("job", "show", "@last")
    assert "admin/etl version 1 (nightly)" in shown.out
    assert "n=2" in shown.out
    assert "word=7" in shown.out
    assert "└─ · b  waits for a" in shown.out
    stack.run_tasks([OK, BAD])
    watched = done("job", "watch", first, status=ExitStatus.TASKS_FAILED)
    assert "a 1: exit_code  (mitosis logs " in watched.err
    assert watched.err.splitlines()[-2:] == [
        f"run again what has not succeeded: mitosis job rerun {first}",
        "exit status 10",
    ]
    (failed,) = done("job", "tasks", first, "a", "--state", "failed", "--json").json
    assert (failed["index"], failed["kind"]) == (1, "exit_code")
    second = done("job", "rerun", "@last", "--quiet").out.strip()
    for number, outcomes in enumerate(([OK], [OK]), 2):
        done("manager", "drain", f"host-{number - 1}")
        stack.run_tasks(outcomes, f"host-{number}")
    views = [json.loads(line) for line in done("job", "watch", second, "--json").out.splitlines()]
    assert views[-1]["state"] == "success"
    assert views[-1]["rerun_of"] == first
    assert "2 of 2  1 taken over\n" in done("job", "show", second).out
    assert done("job", "runs", "--quiet").out.split() == [second, first]
    done("job", "rerun", second, "--wait")
    assert done("job", "show", "@last").out.endswith("  taken over\n")
    taken = done("job", "tasks", "@last", "a", "--json").json
    assert [(one["index"], one["state"]) for one in taken] == [(0, "succeeded"), (1, "succeeded")]
    everything = done("job", "rerun", second, "--all", "--json").json
    assert [one["taken_from"] for one in everything["steps"]] == [None, None]
    assert done("job", "runs", "--state", "success", "--quiet").out.split()[1:] == [second]
    assert done("job", "runs", "--state", "failed", "--job", "etl", "--quiet").out.split() == [
        first
    ]
    assert done("job", "runs", "--label", "another", "--quiet").out == ""
    assert done("job", "runs", "--limit", "1", "--quiet").out.split() == [everything["run_id"]]


@pytest.mark.spec("S001-51")
def test_a_cancelled_run_ends_with_the_status_of_a_cancel(stack: CliStack) -> None:
    done("job", "start", "etl.yaml", "-p", "n=3", "-p", "word=x")
    done("job", "cancel", "@last", "--reason", "too slow", "--grace", "1s")
    watched = done("job", "watch", "@last", status=ExitStatus.CANCELLED)
    assert "too slow" in watched.err
    again = done("job", "rerun", "@last", "--all", "--quiet").out.strip()
    done("job", "delete", again, status=ExitStatus.CONFLICT)
    done("job", "cancel", again, "--skip-cleanup")
    views = done("job", "watch", again, "--json", status=ExitStatus.CANCELLED).out.splitlines()
    assert json.loads(views[-1])["run_id"] == again
    assert done("job", "delete", "@last", "--quiet").out.strip() == again
    assert again not in done("job", "runs", "--quiet").out


def test_the_last_run_is_the_last_one_that_this_user_started(
    stack: CliStack, tmp_path: Path
) -> None:
    mine = done("job", "start", "etl.yaml", "-p", "n=1", "-p", "word=x", "--quiet").out.strip()
    stack.loop.run(create_user(stack.app_state.store, "bob", "secret words"))
    stack.loop.run(add_member(stack.app_state.store, "admin", "bob", "write"))
    with SyncClient(stack.url) as client:
        token = client.login("bob", "secret words").token
    (tmp_path / "bob").write_text(token)
    (tmp_path / "bob").chmod(0o600)
    as_bob = ("--token-file", str(tmp_path / "bob"))
    none = done("job", "show", "@last", *as_bob, status=ExitStatus.NOT_FOUND)
    assert "bob has started no run" in none.err
    words = ("etl.yaml", "-p", "n=1", "-p", "word=x", "--group", "admin", "--quiet")
    theirs = done("job", "start", *words, *as_bob).out.strip()
    assert done("job", "runs", "--quiet").out.split() == [theirs, mine]
    assert done("job", "runs", "--created-by", "admin", "--quiet").out.split() == [mine]
    assert done("job", "show", "@last", "--quiet").out.strip() == mine
    assert done("job", "show", "@last", "--quiet", *as_bob).out.strip() == theirs


def test_what_is_not_there_and_what_is_wrong(stack: CliStack) -> None:
    stored = done("job", "define", "etl.yaml", "--json").json["job_id"]
    assert done("job", "show", stored).out.startswith("job         etl"), "the id of a job"
    nothing = "00000000-0000-0000-0000-000000000007"
    for verb in (("show",), ("watch",), ("cancel",), ("rerun",)):
        done("job", *verb, nothing, status=ExitStatus.NOT_FOUND)
    wrong = done("job", "start", "etl", "-p", "word=x", status=ExitStatus.INVALID)
    assert "n: is required" in wrong.err
    wrong = done("job", "start", "etl.yaml", "-p", "n=1", "-p", "word=x", "--name", "", status=65)
    assert wrong.err.startswith("error: --name: ")
    started = ("-p", "n=1", "-p", "word=x", "--quiet")
    run = done("job", "start", "etl", *started).out.strip()
    done("job", "rerun", run, status=ExitStatus.CONFLICT)
    done("job", "tasks", run, "c", status=ExitStatus.NOT_FOUND)
