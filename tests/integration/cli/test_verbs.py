"""Commands that act on single tasks, hosts and templates, against the real API and PostgreSQL."""

from collections.abc import Iterator
from uuid import UUID

import pytest

from mitosis.cli.exit import ExitStatus
from tests.support.cli_stack import CliStack, cli_stack
from tests.support.command import Ran, mitosis
from tests.support.servers import LoopThread


@pytest.fixture(scope="module")
def stack(
    server_loop: LoopThread, module_database: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[CliStack]:
    """One for all tests: their names differ."""
    data_dir = tmp_path_factory.mktemp("verbs") / "data"
    with (
        cli_stack(server_loop, module_database, data_dir) as running,
        pytest.MonkeyPatch.context() as patch,
    ):
        running.use(patch)
        yield running


def create(name: str, *words: str) -> UUID:
    return UUID(done(mitosis("group", "create", name, *words, "--quiet")).out.strip())


def done(ran: Ran) -> Ran:
    assert ran.status == 0, ran.err
    return ran


def test_tasks_are_cancelled_by_number_and_by_filter(stack: CliStack) -> None:
    create("t")
    for label in ("a", "b", "b"):
        done(mitosis("group", "submit", "t", "--label", label, "--", "true"))
    first = done(mitosis("group", "tasks", "t", "--json")).json[0]
    dry = done(
        mitosis("task", "cancel", "--group", "t", "--label", "b", "--dry-run", "--json")
    ).json
    assert (dry["cancelled"], dry["dry_run"]) == (2, True)
    one = done(
        mitosis("task", "cancel", f"t/{first['task_id']}", "--reason", "why not", "--json")
    ).json
    assert (one["cancelled"], one["tasks"][0]["outcome"]) == (1, "cancelled")
    again = done(mitosis("task", "cancel", first["task_uuid"])).out
    assert "had ended before" in again
    assert mitosis("task", "cancel", "t/999999").status == ExitStatus.NOT_FOUND
    assert mitosis("task", "cancel", "--group", "t").status == ExitStatus.INVALID
    assert mitosis("task", "cancel", "--state", "ready").status == ExitStatus.INVALID
    wrong = mitosis("task", "cancel", "--group", "t", "--state", "failed")
    assert (wrong.status, "--state" in wrong.err) == (ExitStatus.INVALID, True)
    done(mitosis("task", "cancel", "--group", "t", "--all"))
    assert done(mitosis("group", "show", "t", "--json")).json["tasks_cancelled"] == 3


def test_a_host_is_drained_renamed_retagged_and_deleted(stack: CliStack) -> None:
    done(mitosis("manager", "register", "drained", "--tag", "cpu", "--quiet"))
    words = ("--now", "--reason", "new disk", "--wait", "--timeout", "9s", "--json")
    drained = done(mitosis("manager", "drain", "drained", *words)).json
    assert (drained["drain"]["empty"], drained["drain"]["reason"]) == (True, "new disk")
    assert "drained because  new disk" in done(mitosis("manager", "show", "drained")).out
    assert mitosis("manager", "drain", "drained", "--timeout", "9s").status == ExitStatus.INVALID
    assert done(mitosis("manager", "resume", "drained", "--json")).json["drain"] is None
    tagged = done(mitosis("manager", "retag", "drained", "--tag", "gpu", "--json")).json
    assert tagged["tags"] == ["gpu"]
    assert done(mitosis("manager", "retag", "drained", "--no-tags", "--json")).json["tags"] == []
    assert mitosis("manager", "retag", "drained").status == ExitStatus.INVALID
    done(mitosis("manager", "rename", "drained", "renamed"))
    done(mitosis("manager", "register", "second", "--quiet"))
    taken = mitosis("manager", "rename", "second", "renamed")
    assert (taken.status, "is called renamed" in taken.err) == (ExitStatus.CONFLICT, True)
    assert done(mitosis("manager", "delete", "renamed", "--json")).json == {"deleted": "renamed"}
    assert mitosis("manager", "show", "renamed").status == ExitStatus.NOT_FOUND


def test_a_group_that_runs_is_deleted_by_force(stack: CliStack) -> None:
    group_id = create("forced")
    early = mitosis("group", "delete", "forced")
    assert (early.status, "mitosis group delete --force" in early.err) == (
        ExitStatus.CONFLICT,
        True,
    )
    assert mitosis("group", "delete", "forced", "--wait").status == ExitStatus.INVALID
    words = ("--force", "--grace", "1s", "--json")
    assert done(mitosis("group", "delete", "forced", *words)).json == {"deleting": "forced"}
    shown = done(mitosis("group", "show", "forced", "--json")).json
    assert (shown["state"], shown["deleting"]) == ("cancelled", True)
    stack.end(group_id)
    assert mitosis("group", "show", "forced").status == ExitStatus.NOT_FOUND


def test_templates_are_saved_used_and_deleted(stack: CliStack) -> None:
    words = ("--workers", "4", "--priority", "3", "--setup", "true")
    saved = done(mitosis("template", "save", "nightly", *words, "--json")).json
    assert saved["spec"]["worker_allocation_plan"] == {"worker_count": 4}
    assert mitosis("template", "save", "nightly", "--workers", "1").status == ExitStatus.CONFLICT
    made = ("group", "create", "tonight", "--template", "nightly", "--workers", "2", "--json")
    group = done(mitosis(*made)).json
    assert (group["worker_allocation_plan"]["worker_count"], group["priority"]) == (2, 3)
    done(mitosis("template", "save", "copied", "--from", "tonight"))
    listed = done(mitosis("template", "list", "--json")).json
    assert [one["name"] for one in listed] == ["copied", "nightly"]
    assert "priority" in done(mitosis("template", "show", "admin/copied")).out
    wrong = mitosis("template", "save", "bad", "--priority", str(2**40))
    assert (wrong.status, "--priority" in wrong.err) == (ExitStatus.INVALID, True)
    done(mitosis("template", "delete", "copied"))
    assert mitosis("template", "show", "copied").status == ExitStatus.NOT_FOUND


def test_the_managers_of_a_group(stack: CliStack) -> None:
    def listed() -> list[str]:
        return done(mitosis("group", "managers", "m", "--quiet")).out.split()

    create("m", "--tag", "gpu")
    fits, other = (
        done(mitosis("manager", "register", *words, "--quiet")).out.strip()
        for words in (("fits", "--tag", "gpu"), ("other",))
    )
    assert listed() == [fits]
    shown = done(mitosis("group", "managers", "m", "--add", "other", "--refresh", "--json")).json
    assert shown == {
        "added_managers": [],
        "removed_managers": [],
        "user_specified_kept": [other],
    }
    assert sorted(listed()) == sorted([fits, other])
    rows = done(mitosis("group", "managers", "m")).out.splitlines()
    assert [row.split("  ")[-1].strip() for row in rows] == ["chosen by", "tags: gpu", "name"]
    done(mitosis("group", "change", "m", "--tag", "cpu"))
    text = done(mitosis("group", "managers", "m", "--remove", other, "--refresh")).out
    assert [line.split() for line in text.splitlines()] == [
        ["added", "none"],
        ["removed", fits],
        ["added", "by", "name,", "kept", "none"],
    ]
    assert listed() == []
    assert mitosis("group", "managers", "m", "--add", "nobody").status == ExitStatus.NOT_FOUND
    create("n", "--host", fits)
    assert mitosis("group", "managers", "n", "--remove", other).status == ExitStatus.NOT_FOUND
