"""Commands that follow a group while the API is away: they say once that they wait, and go on."""

import signal
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


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("option", "number", "says"),
    [
        (("--on-interrupt", "detach"), signal.SIGTERM, ("detaching", "detached")),
        (("--on-interrupt", "cancel"), signal.SIGINT, ("cancelling", "not cancelled")),
        (("--deadline", "2s"), signal.SIGINT, ("--deadline passed", "not cancelled")),
    ],
)
def test_a_run_ends_when_it_is_asked_to_although_the_api_is_away(
    server_loop: LoopThread,
    database: str,
    tmp_path: Path,
    option: tuple[str, ...],
    number: signal.Signals,
    says: tuple[str, str],
) -> None:
    """Its last calls are not answered, so the next signal ends the wait for them."""
    said = tmp_path / "said"
    serving = ExitStack()
    stack = serving.enter_context(cli_stack(server_loop, database, tmp_path / "data"))
    env = stack.environment()
    command = ["run", "--name", "work", *option, "echo", "{}", ":::", "1"]
    with said.open("wb") as out:
        run = subprocess.Popen([*prepared_mitosis(env), *command], env=env, stdout=out, stderr=out)
    try:
        wait_until(lambda: held(stack), 60, said.read_text)
        serving.close()
        if "--deadline" not in option:
            wait_until(lambda: AWAY in said.read_text(), 30, said.read_text)
            run.send_signal(number)
        wait_until(lambda: says[0] in said.read_text(), 30, said.read_text)
        run.send_signal(signal.SIGINT)
        assert run.wait(30) in (124, 130), said.read_text()
        assert says[1] in said.read_text()
        assert "Traceback" not in said.read_text()
    finally:
        run.kill()
        run.wait()
        serving.close()


def held(stack: CliStack) -> bool:
    """Does the command follow the group? Its first questions have been answered then."""
    return stack.app_state.store.listening.waiting > 0


def is_closed(stack: CliStack) -> bool:
    """Have all tasks been submitted?"""
    with SyncClient(stack.url, stack.token) as client:
        return [group.state for group in client.groups()] == [TaskGroupState.CLOSED]
