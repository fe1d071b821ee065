"""The command line against the real API and PostgreSQL: the whole job, and every refusal."""

import contextlib
import json
import os
import pty
import signal
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from uuid import UUID

import psycopg
import pytest

from mitosis.cli.exit import ExitStatus
from mitosis.contracts.wire import Outcome
from mitosis.embedded.data_folder import ed25519_private_key, free_port
from mitosis.store.users.accounts import create_user
from tests.support.cli_stack import COMMAND, CliStack, cli_stack
from tests.support.command import Ran, mitosis
from tests.support.servers import LoopThread
from tests.support.waiting import wait_until

WORKED, FAILED = Outcome.SUCCEEDED, Outcome.FAILED


@pytest.fixture
def stack(
    server_loop: LoopThread, database: str, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[CliStack]:
    with cli_stack(server_loop, database, data_dir) as running:
        use(running, monkeypatch)
        yield running


@pytest.fixture(scope="module")
def refusing_stack(
    server_loop: LoopThread, module_database: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[CliStack]:
    """One with the groups `taken` and `shut`, for tests that change nothing."""
    data_dir = tmp_path_factory.mktemp("refusing") / "data"
    with (
        cli_stack(server_loop, module_database, data_dir) as running,
        pytest.MonkeyPatch.context() as patch,
    ):
        use(running, patch)
        create("taken")
        create("shut")
        done(mitosis("group", "close", "shut"))
        yield running


def use(stack: CliStack, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have commands of this process find the stack, and no settings or logins of this host."""
    for name in [name for name in os.environ if name.startswith("MITOSIS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("MITOSIS_DATA_DIR", str(stack.data_dir))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(stack.data_dir))
    monkeypatch.setenv("XDG_STATE_HOME", str(stack.data_dir))


def create(name: str, *words: str) -> UUID:
    ran = mitosis("group", "create", name, *words, "--quiet")
    assert ran.status == 0, ran.err
    return UUID(ran.out.strip())


def done(ran: Ran) -> Ran:
    assert ran.status == 0, ran.err
    return ran


def test_the_job_from_create_to_list(stack: CliStack) -> None:
    create("squares", "--workers", "2", "--pin", "exclusive", "--tag", "gpu", "--label", "night")
    commands = "true\n# a comment\nsh -c 'exit 3'\n"
    submitted = done(
        mitosis("group", "submit", "squares", "--command-file", "-", "--json", stdin=commands)
    ).json
    assert len(submitted["task_ids"]) == 2
    shown = done(mitosis("group", "show", "squares", "--json")).json
    assert shown["state"] == "open"
    assert shown["tasks_total"] == 2
    assert shown["worker_allocation_plan"]["cpu_binding"]["strategy"] == "exclusive"
    tasks = done(mitosis("group", "tasks", "admin/squares", "--json")).json
    assert [task["spec"]["command"] for task in tasks] == [["true"], ["sh", "-c", "exit 3"]]
    assert [task["task_id"] for task in tasks] == submitted["task_ids"]
    one = done(mitosis("task", "show", tasks[1]["task_uuid"])).out
    assert "sh -c 'exit 3'" in one
    by_number = mitosis("task", "show", str(tasks[1]["task_id"]), "--group", "squares")
    assert done(by_number).out == one
    assert mitosis("task", "show", "99", "--group", "squares").status == ExitStatus.NOT_FOUND
    listed = done(mitosis("group", "list", "--label", "night", "--json")).json
    assert [group["name"] for group in listed] == ["squares"]
    assert done(mitosis("group", "list", "--tag", "cpu", "--json")).json == []


def test_verbs_follow_the_lifecycle(stack: CliStack) -> None:
    group_id = create("verbs")
    closed = done(mitosis("group", "close", "verbs", "--reason", "enough", "--json")).json
    assert (closed["state"], closed["task_group_id"]) == ("closed", str(group_id))
    assert done(mitosis("group", "reopen", "verbs", "--json")).json["state"] == "open"
    refused = mitosis("group", "reopen", "verbs", "--json")
    assert done(mitosis("group", "cancel", "verbs", "--json")).json["state"] == "cancelled"
    assert refused.status in (ExitStatus.OK, ExitStatus.CONFLICT)  # reopen ensures OPEN
    late = mitosis("group", "reopen", "verbs", "--json")
    assert late.status == ExitStatus.CONFLICT
    assert late.problem["code"] == "invalid_transition"
    assert late.problem["allowed"] == []
    assert "cancelled does not allow reopen" in mitosis("group", "reopen", "verbs").err


def test_endings_with_their_options(stack: CliStack) -> None:
    create("soft")
    done(mitosis("group", "submit", "soft", "--", "true"))
    words = ("--let-running-finish", "--grace", "5s", "--reason", "enough")
    soft = done(mitosis("group", "cancel", "soft", *words, "--json")).json
    assert (soft["state"], soft["reason"]) == ("cancelled", "enough")
    create("forced")
    done(mitosis("group", "submit", "forced", "--", "true"))
    closed = done(mitosis("group", "complete", "forced", "--json")).json
    assert (closed["state"], closed["tasks_cancelled"]) == ("closed", 0)
    done(mitosis("group", "complete", "forced", "--force", "--grace", "0"))
    stack.end(UUID(closed["task_group_id"]))
    ran = mitosis("group", "wait", "forced", "--json")
    assert (ran.json["state"], ran.json["tasks_cancelled"]) == ("complete", 1)
    assert ran.status == ExitStatus.TASKS_FAILED


@pytest.mark.spec("S002-78")
def test_every_option_of_create_arrives(stack: CliStack, database: str) -> None:
    setup = ("--setup", "sh -c 'echo $HOME'", "--teardown", "rm -rf /tmp/x")
    times = ("--auto-close", "1h30m", "--host-lost-after", "45s", "--cancel-grace", "5s")
    more = ("--max-hosts", "3", "--priority", "-7", "--cores", "0-1,3", "--pin", "shared")
    late, before = ("--deadline", "8h"), datetime.now(UTC)
    plan = '{"environment": {"A": "1"}}'
    spec = f'{{"tags": ["of-the-file"], "labels": ["kept"], "worker_allocation_plan": {plan}}}'
    words = ("--spec", "-", "--tag", "a", "--tag", "b", "--workers", "2")
    ran = mitosis(
        "group", "create", "all", *words, *setup, *times, *late, *more, "--json", stdin=spec
    )
    group = done(ran).json
    assert group["environment_setup_hook"]["command"] == ["sh", "-c", "echo $HOME"]
    assert group["environment_teardown_hook"]["command"] == ["rm", "-rf", "/tmp/x"]
    assert (group["auto_close_timeout"], group["max_managers"], group["priority"]) == (
        5400.0,
        3,
        -7,
    )
    left = datetime.fromisoformat(group["close_deadline"]) - before
    assert timedelta(hours=8) <= left < timedelta(hours=8, minutes=5)
    assert (sorted(group["tags"]), group["labels"]) == (["a", "b"], ["kept"])
    workers = group["worker_allocation_plan"]
    assert (workers["worker_count"], workers["environment"]) == (2, {"A": "1"})
    assert workers["cpu_binding"]["strategy"] == "shared"
    assert workers["cpu_binding"]["cores"] == [0, 1, 3]
    with psycopg.connect(database) as link:  # what the API does not show
        found = link.execute(
            "SELECT host_lost_after_seconds, cancel_grace_seconds FROM task_groups"
        )
        assert found.fetchall() == [(45.0, 5.0)]


def test_every_option_of_submit_arrives(stack: CliStack, monkeypatch: pytest.MonkeyPatch) -> None:
    create("s")
    options = ("--priority", "5", "--timeout", "2m", "--kill-grace", "3s", "--cwd", "/tmp")
    monkeypatch.setenv("OF_MINE", "x")
    more = ("--env=A=b=c", "--env=OF_MINE", "--dedup-key", "k", "--retries", "2", "--label", "l")
    words = ("--handler", "pkg.mod:run", "--arguments", '{"x": [1]}')
    done(mitosis("group", "submit", "s", *options, *more, *words))
    (task,) = done(mitosis("group", "tasks", "s", "--json")).json
    assert task["priority"] == 5
    spec = task["spec"]
    assert (spec["handler"], spec["arguments"]) == ("pkg.mod:run", {"x": [1]})
    assert (spec["timeout_seconds"], spec["kill_grace_seconds"]) == (120.0, 3.0)
    assert (spec["environment"], spec["working_directory"]) == (
        {"A": "b=c", "OF_MINE": "x"},
        "/tmp",
    )
    assert (spec["dedup_key"], spec["retry"]["max_attempts"], spec["labels"]) == ("k", 3, ["l"])


def test_a_group_is_changed_where_it_is_told_so(stack: CliStack) -> None:
    create("c", "--tag", "old", "--label", "kept", "--priority", "1")
    words = ("--tag", "new", "--priority", "9", "--auto-close", "2h", "--max-hosts", "4")
    changed = done(mitosis("group", "change", "c", *words, "--json")).json
    assert (changed["tags"], changed["labels"], changed["priority"]) == (["new"], ["kept"], 9)
    assert (changed["auto_close_timeout"], changed["max_managers"]) == (7200.0, 4)
    kept = done(mitosis("group", "change", "c", "--auto-close", "never", "--json")).json
    assert (kept["auto_close_timeout"], kept["max_managers"]) == (None, 4)
    more = ("--workers", "3", "--tag-match", "any", "--cancel-grace", "2m", "--reopen-on-submit")
    other = done(mitosis("group", "change", "c", *more, "--json")).json
    assert other["worker_allocation_plan"]["worker_count"] == 3
    done(mitosis("group", "change", "c", "--pin", "exclusive", "--cores", "0-2"))
    bound = done(mitosis("group", "change", "c", "--cores-per-worker", "1", "--json")).json
    plan = bound["worker_allocation_plan"]
    assert plan["cpu_binding"].items() >= {"strategy": "exclusive", "cores_per_worker": 1}.items()
    assert (plan["cpu_binding"]["cores"], plan["worker_count"]) == ([0, 1, 2], 3)
    assert (other["tag_match"], other["cancel_grace_seconds"]) == ("any", 120.0)
    assert other["reopen_on_submit"]
    free = done(mitosis("group", "change", "c", "--max-hosts", "unlimited", "--json")).json
    assert (free["max_managers"], free["tags"]) == (None, ["new"])
    own = done(mitosis("group", "change", "c", "--lease", "2h", "--idle", "4m", "--json")).json
    assert own["lease_settings"]["lease_duration"] == 7200
    bad = mitosis("group", "change", "c", "--longest-lease", "1h")
    assert bad.status == ExitStatus.INVALID
    assert "--longest-lease: must be at least lease_duration, 7200 s, not 3600 s" in bad.err
    assert "2h to 4h; 4m to 10m without work" in done(mitosis("group", "show", "c")).out
    grace = done(mitosis("group", "change", "c", "--preemption-grace", "1m", "--json")).json
    assert grace["lease_settings"]["preemption_grace"] == 60
    own = done(mitosis("group", "change", "c", "--lease", "default", "--json")).json
    assert own["lease_terms"]["lease_duration"] == 3600
    done(mitosis("group", "cancel", "c"))
    assert mitosis("group", "change", "c", "--priority", "2").status == ExitStatus.CONFLICT


def test_delete_waits_for_the_end(stack: CliStack) -> None:
    group_id = create("gone")
    early = mitosis("group", "delete", "gone")
    assert early.status == ExitStatus.CONFLICT
    done(mitosis("group", "cancel", "gone"))
    stack.end(group_id)
    assert done(mitosis("group", "delete", "gone", "--json")).json == {"deleted": "gone"}
    assert mitosis("group", "show", "gone").status == ExitStatus.NOT_FOUND


def test_quiet_prints_ids_for_scripts(stack: CliStack) -> None:
    ids = [str(create(name)) for name in ("a", "b")]
    assert done(mitosis("group", "list", "--quiet")).out.split() == ids[::-1]


def test_a_quiet_submission_prints_numbers_by_which_tasks_are_shown(stack: CliStack) -> None:
    create("numbered")
    words = ("group", "submit", "numbered", "--command-file", "-", "--quiet")
    numbers = done(mitosis(*words, stdin="true\nfalse\n")).out.split()
    shown = [done(mitosis("task", "show", f"numbered/{n}", "--json")).json for n in numbers]
    assert [task["spec"]["command"] for task in shown] == [["true"], ["false"]]
    ids = done(mitosis("group", "tasks", "numbered", "--quiet")).out.split()
    assert sorted(ids) == sorted(task["task_uuid"] for task in shown)


def test_a_table_shows_a_screenful_and_says_so(stack: CliStack) -> None:
    create("many")
    done(mitosis("group", "submit", "many", "--command-file", "-", stdin="true\n" * 60))
    table = done(mitosis("group", "tasks", "many"))
    assert len(table.out.splitlines()) == 53
    assert "details of one: mitosis task show" in table.out
    assert "only the first 50 are shown" in table.err
    assert len(done(mitosis("group", "tasks", "many", "--limit", "0")).out.splitlines()) == 63
    assert len(done(mitosis("group", "tasks", "many", "--json")).json) == 60


def test_an_idempotency_key_submits_once(stack: CliStack) -> None:
    create("once")
    words = ("group", "submit", "once", "--idempotency-key", "k", "--json", "--", "true")
    assert done(mitosis(*words)).json == done(mitosis(*words)).json
    assert done(mitosis("group", "show", "once", "--json")).json["tasks_total"] == 1


REFUSED = [
    (["group", "create", "taken"], ExitStatus.CONFLICT, "already_exists", "taken"),
    (["group", "show", "nowhere"], ExitStatus.NOT_FOUND, "not_found", "nowhere"),
    (["group", "show", "nobody/taken"], ExitStatus.NOT_FOUND, "not_found", ""),
    (["task", "show", str(UUID(int=1))], ExitStatus.NOT_FOUND, "not_found", ""),
    (["manager", "show", str(UUID(int=1))], ExitStatus.NOT_FOUND, "not_found", ""),
    (["group", "submit", "shut", "--", "true"], ExitStatus.CONFLICT, "task_group_closed", ""),
    (
        ["group", "create", "x", "--user-group", "nobody"],
        ExitStatus.NOT_FOUND,
        "not_found",
        "nobody",
    ),
    (
        ["group", "create", "x", "--workers", "3", "--pin", "exclusive", "--cores", "0,1"],
        ExitStatus.INVALID,
        "invalid_request",
        "3 exclusive workers need 3 cores",
    ),
    (
        ["group", "submit", "taken", "--", "echo", "x" * 1_100_000],
        ExitStatus.INVALID,
        "too_large",
        "",
    ),
]


@pytest.mark.parametrize(
    ("words", "status", "code", "says"), REFUSED, ids=lambda value: str(value)[:50]
)
def test_what_the_api_refuses_changes_nothing(
    refusing_stack: CliStack,
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    status: ExitStatus,
    code: str,
    says: str,
) -> None:
    use(refusing_stack, monkeypatch)
    before = done(mitosis("group", "list", "--json")).json
    ran = mitosis(*words[:2], "--json", *words[2:])
    assert ran.problem["code"] == code
    assert says in ran.problem["detail"]
    assert ran.status == ran.problem["exit_status"] == status
    assert ran.out == ""
    assert done(mitosis("group", "list", "--json")).json == before


def test_a_field_that_the_api_refuses_is_named_with_its_option(stack: CliStack) -> None:
    words = ("--workers", "3", "--pin", "exclusive", "--cores", "0,1")
    ran = mitosis("group", "create", "x", *words)
    assert ran.err.startswith("error: --workers: 3 exclusive")


def test_a_bad_token_says_how_to_get_a_good_one(stack: CliStack, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("not.a.token")
    ran = mitosis("whoami", "--token-file", str(file))
    assert ran.status == ExitStatus.NOT_ALLOWED
    assert "mitosis login USERNAME" in ran.err
    assert "not.a.token" not in ran.err


def test_too_many_wrong_passwords_say_when_to_try_again(stack: CliStack) -> None:
    def login() -> Ran:
        return mitosis("login", "eve", "--password-file", "-", "--json", stdin="wrong")

    while (ran := login()).status == ExitStatus.NOT_ALLOWED:
        pass
    assert ran.status == ExitStatus.TRY_LATER
    assert ran.problem["code"] == "rate_limited"
    assert f"try again in {ran.problem['retry_after_seconds']} s" in ran.problem["detail"]


def test_login_whoami_logout(stack: CliStack) -> None:
    stack.loop.run(create_user(stack.app_state.store, "ann", "secret words"))
    assert done(mitosis("whoami", "--quiet")).out == "admin\n"
    wrong = mitosis("login", "ann", "--password-file", "-", stdin="wrong")
    assert wrong.status == ExitStatus.NOT_ALLOWED
    logged_in = done(mitosis("login", "ann", "--password-file", "-", stdin="secret words\n"))
    assert "secret words" not in logged_in.out
    assert done(mitosis("whoami", "--json")).json["username"] == "ann"
    done(mitosis("logout"))
    assert done(mitosis("whoami", "--quiet")).out == "admin\n"


def test_managers_are_registered_and_listed(stack: CliStack, tmp_path: Path) -> None:
    assert "mitosis agent" in done(mitosis("manager", "list")).out
    file = tmp_path / "manager.token"
    words = ("manager", "register", "host-1", "--tag", "gpu", "--lifetime", "2d")
    registered = done(mitosis(*words, "--save-token", str(file), "--json")).json
    assert registered["token_file"] == str(file)
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.read_text() not in json.dumps(registered)
    listed = done(mitosis("manager", "list", "--json")).json
    assert [(one["name"], one["state"], one["tags"]) for one in listed] == [
        ("host-1", "offline", ["gpu"])
    ]
    shown = done(mitosis("manager", "show", registered["manager_id"])).out
    assert "host-1" in shown
    assert done(mitosis("manager", "show", "host-1")).out == shown
    assert "no host is called 'host-2'" in mitosis("manager", "show", "host-2").err
    again = mitosis(*words, "--save-token", str(file))
    assert f"{file} exists; name a new file" in again.err
    assert len(done(mitosis("manager", "list", "--json")).json) == 1


def test_the_doctor_finds_the_api(stack: CliStack) -> None:
    report = mitosis("doctor", "--json").json
    checks = {check["name"]: check for check in report["checks"]}
    assert checks["api"] == {
        "name": "api",
        "state": "ok",
        "found": f"{stack.url}, as admin",
        "advice": "",
    }
    assert checks["temporal server"]["state"] == "fail"
    assert report["ok"] is False


# --- wait ---------------------------------------------------------------------------------------------


def waiting(stack: CliStack, *words: str) -> subprocess.Popen[str]:
    """`mitosis group wait …` in a process of its own, with pipes."""
    return subprocess.Popen(
        [*COMMAND, "group", "wait", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=stack.environment(),
    )


@pytest.mark.parametrize(
    ("outcomes", "status", "result"),
    [
        ([WORKED, WORKED], ExitStatus.OK, "success"),
        ([WORKED, FAILED], ExitStatus.TASKS_FAILED, "tasks_failed"),
    ],
)
def test_wait_ends_with_the_result(
    stack: CliStack, outcomes: list[Outcome], status: ExitStatus, result: str
) -> None:
    group_id = create("w")
    done(mitosis("group", "submit", "w", "--command-file", "-", stdin="true\n" * len(outcomes)))
    done(mitosis("group", "close", "w"))
    process = waiting(stack, "w", "--json")
    stack.run_tasks(outcomes)
    stack.end(group_id)
    out, err = process.communicate(timeout=30)
    assert process.returncode == status, err
    assert json.loads(out)["result"] == result


def test_wait_for_a_cancelled_group(stack: CliStack) -> None:
    group_id = create("c")
    done(mitosis("group", "submit", "c", "--", "true"))
    done(mitosis("group", "cancel", "c"))
    stack.end(group_id)
    ran = mitosis("group", "wait", "c", "--json")
    assert ran.status == ExitStatus.CANCELLED
    assert ran.json["tasks_cancelled"] == 1


def test_wait_gives_up_after_its_timeout_and_says_that_the_group_goes_on(stack: CliStack) -> None:
    create("t")
    ran = mitosis("group", "wait", "t", "--timeout", "0.3s")
    assert ran.status == ExitStatus.TIMED_OUT
    assert "mitosis group close t" in ran.err
    assert "the task group continues" in ran.err
    assert "open" in ran.out


class Seen:
    """Everything that a terminal has shown so far."""

    def __init__(self, controller: int) -> None:
        self._controller = controller
        self._bytes = b""

    def text(self) -> str:
        with contextlib.suppress(OSError):  # nothing new, or the other end is closed
            self._bytes += os.read(self._controller, 65536)
        return self._bytes.decode(errors="replace")

    def wait_for(self, text: str) -> None:
        wait_until(lambda: text in self.text(), timeout=30, on_timeout=self.text)


@contextlib.contextmanager
def on_a_terminal(stack: CliStack, *words: str) -> Iterator[tuple[subprocess.Popen[bytes], Seen]]:
    """`mitosis group wait …` with a terminal as its standard error, and what that shows."""
    controller, terminal = pty.openpty()
    os.set_blocking(controller, False)
    command = [*COMMAND, "group", "wait", *words]
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=terminal, env=stack.environment()
    ) as process:
        os.close(terminal)
        try:
            yield process, Seen(controller)
        finally:
            process.kill()
            os.close(controller)


@pytest.mark.spec("S000-116")
def test_a_terminal_sees_progress_and_ctrl_c_leaves_the_group_alone(stack: CliStack) -> None:
    create("p")
    done(mitosis("group", "submit", "p", "--", "true"))
    with on_a_terminal(stack, "p") as (process, seen):
        seen.wait_for("p: open, 0 of 1 completed")
        done(mitosis("group", "submit", "p", "--", "true"))
        seen.wait_for("0 of 2 completed")
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == ExitStatus.INTERRUPTED
        seen.wait_for("the task group continues")
        assert "Traceback" not in seen.text()
    assert done(mitosis("group", "show", "p", "--json")).json["state"] == "open"


def test_an_outage_of_the_api_is_waited_out(
    server_loop: LoopThread, database: str, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port, key = free_port(), ed25519_private_key()
    served = partial(cli_stack, server_loop, database, data_dir, port=port, signing_key=key)
    with contextlib.ExitStack() as exits:
        with served() as stack:
            use(stack, monkeypatch)
            group_id = create("o")
            process, seen = exits.enter_context(on_a_terminal(stack, "o"))
            seen.wait_for("o: open, 0 of 0 completed")
        seen.wait_for("cannot be reached")
        with served() as stack:
            done(mitosis("group", "cancel", "o"))
            stack.end(group_id)
            assert process.wait(30) == ExitStatus.CANCELLED, seen.text()
