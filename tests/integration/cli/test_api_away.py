"""Commands that follow a group while the API is away: they say once that they wait, and go on."""

import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest

from mitosis.client.sync import SyncClient
from mitosis.contracts.http import TaskGroupSpec
from mitosis.contracts.lifecycle import TaskGroupState
from mitosis.contracts.wire import Outcome
from mitosis.embedded.data_folder import ed25519_private_key, free_port
from mitosis.store.groups.definition import find_group
from tests.support.cli_stack import CliStack, cli_stack
from tests.support.program import prepared_mitosis
from tests.support.servers import LoopThread
from tests.support.waiting import wait_until

AWAY = "tasks keep running"
FOLLOW, WATCH = ("group", "wait", "work"), ("watch", "work")
RUN = ("run", "--name", "work", "echo", "{}", ":::", "1")


@pytest.mark.timeout(120)
@pytest.mark.parametrize("command", [FOLLOW, WATCH, RUN])
def test_a_command_that_follows_says_that_it_waits_and_goes_on(
    server_loop: LoopThread, database: str, tmp_path: Path, command: tuple[str, ...]
) -> None:
    key, port, said = ed25519_private_key(), free_port(), tmp_path / "said"
    serving = ExitStack()
    stack = serving.enter_context(
        cli_stack(server_loop, database, tmp_path / "data", port=port, signing_key=key)
    )
    if command is not RUN:
        with SyncClient(stack.url, stack.token) as client:
            client.create_group(TaskGroupSpec(name="work"))
            client.submit("work", [{"command": ["true"]}])
            client.close_group("work")
    env = stack.environment()
    with said.open("wb") as output:
        following = subprocess.Popen(
            [*prepared_mitosis(env), *command], env=env, stdout=output, stderr=output
        )
    try:
        wait_until(lambda: held(stack) and is_closed(stack), 60, said.read_text)
        serving.close()
        wait_until(lambda: AWAY in said.read_text(), 30, said.read_text)
        with cli_stack(
            server_loop, database, tmp_path / "data", port=port, signing_key=key
        ) as back:
            back.run_tasks([Outcome.SUCCEEDED])
            back.end(back.loop.run(find_group(back.app_state.store, "admin/work")))
            assert following.wait(30) == 0, said.read_text()
        assert said.read_text().count(AWAY) == 1
    finally:
        following.kill()
        following.wait()
        serving.close()


def held(stack: CliStack) -> bool:
    """Does the command follow the group? Its first questions have been answered then."""
    return stack.app_state.store.listening.waiting > 0


def is_closed(stack: CliStack) -> bool:
    """Have all tasks been submitted?"""
    with SyncClient(stack.url, stack.token) as client:
        return [group.state for group in client.groups()] == [TaskGroupState.CLOSED]
