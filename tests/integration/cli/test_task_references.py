"""A task is named by number or UUID, with its group or alone, wherever one is taken; and Tab knows both."""

import os
import subprocess
from collections.abc import Iterator

import pytest

from mitosis.cli.exit import ExitStatus
from tests.support.cli_stack import CliStack, cli_stack
from tests.support.command import mitosis
from tests.support.program import prepared_mitosis
from tests.support.servers import LoopThread


@pytest.fixture(scope="module")
def stack(
    server_loop: LoopThread, module_database: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[CliStack]:
    """One with the groups `first` and `second`, a task in each."""
    data_dir = tmp_path_factory.mktemp("references") / "data"
    with (
        cli_stack(server_loop, module_database, data_dir) as running,
        pytest.MonkeyPatch.context() as patch,
    ):
        for name in [name for name in os.environ if name.startswith("MITOSIS_")]:
            patch.delenv(name)
        patch.setenv("MITOSIS_DATA_DIR", str(data_dir))
        patch.setenv("XDG_CONFIG_HOME", str(data_dir))
        patch.setenv("XDG_STATE_HOME", str(data_dir))
        for group in ("first", "second"):
            assert mitosis("group", "create", group).status == 0
            assert mitosis("group", "submit", group, "--", "true").status == 0
        yield running


def task_of(group: str) -> tuple[str, str]:
    """Number and UUID of its task, as `--quiet` prints them."""
    (task,) = mitosis("group", "tasks", group, "--json").json
    assert mitosis("group", "tasks", group, "--quiet").out == f"{task['task_uuid']}\n"
    return str(task["task_id"]), str(task["task_uuid"])


@pytest.mark.parametrize("command", [["logs"], ["explain"], ["task", "show"]], ids=" ".join)
def test_every_name_of_a_task_is_taken_everywhere(stack: CliStack, command: list[str]) -> None:
    number, uuid = task_of("second")
    me = mitosis("whoami", "--quiet").out.strip()
    for name in (f"second/{number}", f"{me}/second/{number}", f"second/{uuid}", uuid):
        ran = mitosis(*command, name)
        assert ran.status == 0, (name, ran.err)
        assert number in ran.out + ran.err


@pytest.mark.parametrize("command", [["logs"], ["explain"], ["task", "show"]], ids=" ".join)
def test_a_task_of_another_group_is_not_found(stack: CliStack, command: list[str]) -> None:
    _, uuid = task_of("second")
    ran = mitosis(*command, f"first/{uuid}")
    assert ran.status == ExitStatus.NOT_FOUND
    assert f"{uuid} is not a task of first" in ran.err


def test_the_name_of_a_list_is_exact_and_checked(stack: CliStack) -> None:
    ran = mitosis("group", "list", "--name", "[")
    assert ran.status == ExitStatus.INVALID
    assert ran.err.startswith("error: --name: must be 1 to 100 letters")
    assert mitosis("group", "list", "--tag", "a b").err.startswith("error: --tag: ")
    assert "second" in mitosis("group", "list", "--name", "second").out


def offered(stack: CliStack, *words: str) -> list[str]:
    """What bash is given after Tab."""
    asked = {"COMP_WORDS": " ".join(["mitosis", *words]), "COMP_CWORD": str(len(words))}
    env = {**stack.environment(), **asked, "_MITOSIS_COMPLETE": "complete_bash"}
    done = subprocess.run(
        [*prepared_mitosis(env)],
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return done.stdout.split()


def test_tab_offers_groups_and_their_tasks(stack: CliStack) -> None:
    number, _ = task_of("second")
    assert offered(stack, "retry", "sec") == ["second"]
    for command in (["logs"], ["explain"], ["task", "show"]):
        assert offered(stack, *command, "sec") == ["second"]
        assert offered(stack, *command, "second/") == [f"second/{number}"]
    assert offered(stack, "logs", "no such/") == []
