"""Every command that takes --json prints JSON: one test that goes over all of them."""

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import typer

from mitosis.cli import app, execute
from mitosis.client.sync import SyncClient
from mitosis.contracts.wire import Outcome
from mitosis.contracts.worker_services import RegisterWorker
from mitosis.store.users.accounts import create_user
from tests.support.cli_stack import CliStack, cli_stack
from tests.support.servers import LoopThread

pytestmark = pytest.mark.timeout(120)


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[str]:
    """Every command with --json, as it is typed."""
    if hasattr(command, "list_commands"):
        for name in command.list_commands(None):
            yield from commands(command.get_command(None, name), (*path, name))
    elif any("--json" in getattr(parameter, "opts", ()) for parameter in command.params):
        yield " ".join(path)


ALL = list(commands(typer.main.get_command(app)))
MORE: dict[str, Sequence[Sequence[str]]] = {
    "watch": [["done"]],
    "logs": [["done"], ["done/{task}"], ["done", "-f"], ["done/{task}", "-f"]],
    "run": [["--detach", "true", "{}", ":::", "a"], ["--dry-run", "true", "{}", ":::", "a", "b"]],
    "retry": [["done", "--dry-run"], ["done"]],
    "simulate": [["--hosts", "6", "--days", "0.3"]],
    "explain": [["done"], ["done/{task}"]],
    "job check": [["{job}"]],
    "job schema": [[]],
    "job define": [["--dry-run", "{job}"], ["{job}"]],
    "job start": [["{job}", "--dry-run"], ["{job}"]],
    "job watch": [["@last"]],
    "job runs": [[]],
    "job tasks": [["@last", "a"]],
    "job cancel": [["@last"]],
    "job rerun": [["@last"]],
    "job schedule create": [["one", "--cron", "@daily", "--dry-run"], ["one", "--cron", "@daily"]],
    "job schedule list": [[]],
    "job schedule show": [["one"]],
    "job schedule update": [["one", "--every", "1h", "--dry-run"], ["one", "--every", "1h"]],
    "job schedule pause": [["one", "--note", "off"]],
    "job schedule resume": [["one"]],
    "job schedule trigger": [["one"]],
    "job schedule backfill": [["one", "2026-01-01", "2026-01-02", "--dry-run"]],
    "job schedule delete": [["one"]],
    "job list": [[]],
    "job show": [["one"], ["@last"]],
    "job versions": [["one"]],
    "job delete": [["one"]],
    "job graph": [["{job}"]],
    "job diff": [["{job}", "{job}"]],
    "group create": [["new"]],
    "group plan": [["--tasks", "3"]],
    "group submit": [["work", "--", "true"]],
    "group show": [["work"]],
    "group list": [[]],
    "group tasks": [["done"]],
    "group managers": [["work"]],
    "group change": [["work", "--priority", "3"]],
    "group close": [["ended"]],
    "group reopen": [["ended"]],
    "group cancel": [["ended"]],
    "group complete": [["finished"]],
    "group delete": [["done"]],
    "group wait": [["done"]],
    "task show": [["{task}", "--group", "done"]],
    "task cancel": [["--all", "--group", "done"]],
    "template save": [["saved", "--from", "work"]],
    "template list": [[]],
    "template show": [["saved"]],
    "template delete": [["saved"]],
    "manager list": [[]],
    "manager show": [["{manager}"]],
    "manager retry-setup": [["{manager}"]],
    "manager release-quarantine": [["{manager}"]],
    "manager register": [["host-9"]],
    "manager drain": [["{manager}"]],
    "manager resume": [["{manager}"]],
    "manager retag": [["{manager}", "--tag", "gpu"]],
    "manager rename": [["{manager}", "renamed"]],
    "manager delete": [["host-9"]],
    "manager explain": [["{manager}"]],
    "manager switching": [[]],
    "worker list": [[]],
    "worker show": [["mailer"]],
    "worker history": [["mailer"]],
    "worker coverage": [[]],
    "worker drain": [["mailer"]],
    "worker resume": [["mailer"]],
    "handlers list": [[]],
    "handlers gaps": [[]],
    "manager token": [["{manager}"]],
    "user list": [[]],
    "user add": [["second", "--password-file", "{password}", "--role", "person:read"]],
    "user passwd": [["second", "--password-file", "{password}"]],
    "user keep": [["person"], ["person", "30d"]],
    "user lock": [["second"]],
    "user unlock": [["second"]],
    "token list": [[]],
    "token revoke": [["--worker", "mailer"]],
    "login": [["person", "--password-file", "{password}"]],
    "logout": [[]],
    "whoami": [[]],
    "ui": [[]],
    "config show": [[]],
    "doctor": [[]],
}


@pytest.fixture
def stack(database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CliStack]:
    with LoopThread() as loop, cli_stack(loop, database, tmp_path / "data") as running:
        for name in [name for name in os.environ if name.startswith("MITOSIS_")]:
            monkeypatch.delenv(name)
        monkeypatch.setenv("MITOSIS_DATA_DIR", str(running.data_dir))
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
        monkeypatch.setenv("MITOSIS_TEMPORAL__UI_URL", "http://temporal.test")
        monkeypatch.setattr("mitosis.cli.job.schedule.APPEARS_WITHIN_SECONDS", 0.0)
        yield running


def test_every_command_with_json_prints_json(
    stack: CliStack, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def said(*words: str) -> list[Any]:
        """What one command line printed: one document, or one a line."""
        capfd.readouterr()
        status = execute(words)
        out, err = capfd.readouterr()
        assert out.strip(), f"{words} (status {status}) printed nothing: {err}"
        try:
            return [json.loads(out)]
        except ValueError:
            return [json.loads(line) for line in out.splitlines()]

    (tmp_path / "password").write_text("secret words")
    (tmp_path / "job.yaml").write_text("{name: one, steps: {a: {command: ['true']}}}")
    stack.loop.run(create_user(stack.app_state.store, "person", "secret words"))
    for name in ("done", "work", "ended", "finished"):
        said("group", "create", name, "--json")
    said("group", "submit", "done", "--json", "--", "false")
    stack.run_tasks([Outcome.FAILED])
    (done,) = said("group", "close", "done", "--json")
    stack.end(done["task_group_id"])
    (tasks,) = said("group", "tasks", "done", "--json")
    (managers,) = said("manager", "list", "--json")
    facts = {
        "task": str(tasks[0]["task_id"]),
        "manager": managers[0]["manager_id"],
        "password": str(tmp_path / "password"),
        "job": str(tmp_path / "job.yaml"),
    }
    with SyncClient(stack.url, stack.token) as client:
        client.register_worker(RegisterWorker(worker_id="mailer"))
    missing = [command for command in ALL if command not in MORE]
    assert missing == [], "say here how these are called"
    last = [
        "job watch",
        "job rerun",
        "job delete",
        "group delete",
        "manager delete",
        "login",
        "logout",
    ]
    order = [*(command for command in ALL if command not in last), *last]
    for command in order:
        for words in MORE[command]:
            filled = [word.format(**facts) if word != "{}" else word for word in words]
            at = filled.index("true") if command == "run" else 0
            own = [*command.split(), *filled[:at], "--json", *filled[at:]]
            assert said(*own), own
