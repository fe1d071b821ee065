"""Task groups in programs, as their users write them, on one real stack."""

import asyncio
import concurrent.futures
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import timedelta
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from mitosis.client.client import Client
from mitosis.client.outcome import RemoteTraceback, TaskFailed, TaskNotRun
from mitosis.client.sync import SyncClient
from mitosis.client.sync_task_group import SyncTaskFuture, SyncTaskGroup
from mitosis.contracts.errors import AlreadyExists, ApiUnavailable, InvalidRequest, TaskGroupClosed
from mitosis.contracts.http import TaskGroupSpec
from mitosis.contracts.lifecycle import TaskGroupState
from tests.support.admin import admin_address
from tests.support.checkout import ROOT
from tests.support.prepared import python
from tests.support.program import clean_environment
from tests.support.sdk_functions import (
    area,
    fails,
    later,
    not_json,
    process,
    same,
    second_time,
    wait_for,
)
from tests.support.waiting import wait_until

pytestmark = pytest.mark.timeout(180)

# A call of a group, and before it the parameter that it gets wrong.
WRONG: list[tuple[str, Callable[[Any], Any]]] = [
    ("inputs", lambda g: g.map(area, 5)),
    ("buffer_size", lambda g: g.map(area, [], buffer_size=0)),
    ("inputs", lambda g: g.starmap(area, 5)),
    ("buffer_size", lambda g: g.starmap(area, [], buffer_size="x")),
    ("task.command", lambda g: g.submit_task({"command": "true"})),
    ("tasks", lambda g: g.submit_tasks("true")),
    ("idempotency_key", lambda g: g.submit_tasks([], idempotency_key="")),
    ("after", lambda g: g.results(after=-1)),
    ("grace", lambda g: g.cancel(grace=timedelta(seconds=-1))),
    ("reason", lambda g: g.close(reason=1)),
]


@pytest.fixture(scope="module")
def address(stack: Path) -> tuple[str, str]:
    return admin_address(stack)


@pytest.fixture(scope="module")
def client(address: tuple[str, str]) -> Iterator[SyncClient]:
    with SyncClient(*address) as client:
        yield client


@pytest.fixture(scope="class")
def group(client: SyncClient) -> Iterator[SyncTaskGroup]:
    """One that stays open for the tests of functions; two workers."""
    with client.task_group(workers=2) as group:
        yield group
    assert (group.info.state, group.info.settled) == (TaskGroupState.COMPLETE, True)


class TestFunctions:
    """In one group, which stays open: a class is never taken apart by a random order."""

    def test_a_call_is_a_future(self, group: SyncTaskGroup) -> None:
        future = group.submit(area, 3, height=2.5)
        assert future.result(60) == (3, 7.5)
        assert future.task is not None
        assert future.task.spec["handler"] == "tests.support.sdk_functions:area"
        assert not future.cancel()

    @pytest.mark.parametrize(("name", "call"), WRONG)
    def test_a_wrong_argument_is_named_and_nothing_sent(
        self, group: SyncTaskGroup, name: str, call: Callable[[Any], Any]
    ) -> None:
        before = group.refresh().tasks_total
        with pytest.raises(InvalidRequest) as refused:
            next(iter(call(group)))
        assert refused.value.facts["field"] == name
        info = group.refresh()
        assert (info.tasks_total, info.state) == (before, TaskGroupState.OPEN)

    def test_values_arrive_and_come_back_exactly(self, group: SyncTaskGroup) -> None:
        numbers = [2**53 + 1, -(2**70), 10**4299 + 1, 0.1, 5e-324, 1.7976931348623157e308]
        assert list(group.map(same, numbers)) == numbers
        text = "a\x01\ue000\U0001f40b"
        assert group.submit(same, text).result(60) == text
        for value in (float("nan"), float("inf"), "\ud800", "\0", 10**4300):
            with pytest.raises(InvalidRequest) as refused:
                group.submit(same, value)
            assert "value" in str(refused.value)

    def test_futures_are_those_of_concurrent_futures(self, group: SyncTaskGroup) -> None:
        futures = [group.submit(area, width) for width in range(20)]
        done = concurrent.futures.as_completed(futures, timeout=60)
        assert sorted(future.result() for future in done) == [(n, n * 1.0) for n in range(20)]

    def test_maps_in_both_orders_and_of_every_kind_of_function(self, group: SyncTaskGroup) -> None:
        numbers = list(range(50))
        assert [width for width, _ in group.map(area, iter(numbers))] == numbers
        assert sorted(group.map(area, numbers, ordered=False)) == [(n, n * 1.0) for n in numbers]
        assert list(group.starmap(area, zip([1, 2], [3.0, 4.0], strict=True))) == [
            (1, 3.0),
            (2, 8.0),
        ]
        assert list(group.map(later, [5])) == [{5: "done"}]
        assert list(group.map(second_time, [0], priority=3)) == [2]
        assert list(group.map(area, [])) == []

    def test_a_small_buffer_only_takes_longer(self, group: SyncTaskGroup) -> None:
        read: list[int] = []

        def inputs() -> Iterator[int]:
            for number in range(30):
                read.append(number)
                yield number

        results = group.map(area, inputs(), buffer_size=5)
        assert next(results) == (0, 0.0)
        assert len(read) <= 6
        assert len(list(results)) == 29

    def test_an_error_comes_with_the_traceback_of_the_worker(self, group: SyncTaskGroup) -> None:
        with pytest.raises(
            TaskFailed, match=r"\(tests.support.sdk_functions:fails\) failed"
        ) as failed:
            list(group.map(fails, ["17"]))
        assert "LookupError: no row 17" in str(failed.value)
        assert isinstance(failed.value.__cause__, RemoteTraceback)
        assert 'raise LookupError(f"no row {text}")' in str(failed.value.__cause__)
        good, bad = (
            group.starmap(area, [(1,), (2, 3.0)]),
            group.map(fails, ["18"], return_exceptions=True),
        )
        assert list(good) == [(1, 1.0), (2, 6.0)]
        (error,) = bad
        assert isinstance(error, TaskFailed)
        assert error.kind == "handler_error"

    def test_a_timeout_is_an_error_with_that_kind(self, group: SyncTaskGroup) -> None:
        (error,) = group.map(wait_for, ["/never"], timeout=0.2, return_exceptions=True)
        assert isinstance(error, TaskFailed)
        assert error.kind == "timeout"

    def test_a_result_that_is_not_json_fails_its_task_and_not_the_worker(
        self, group: SyncTaskGroup
    ) -> None:
        workers = {group.submit(process).result(60) for _ in range(10)}
        with pytest.raises(TaskFailed, match=r"the handler's result is not JSON: .* set"):
            group.submit(not_json, 1).result(60)
        assert len(workers | {group.submit(process).result(60) for _ in range(10)}) <= 2

    def test_what_cannot_be_sent_is_refused_before_anything_is(self, group: SyncTaskGroup) -> None:
        total = group.refresh().tasks_total
        with pytest.raises(InvalidRequest, match="a lambda has no name"):
            group.submit(lambda: 1)
        with pytest.raises(InvalidRequest, match=r"argument width is a set; send sorted\(\) of it"):
            list(group.map(area, [{1}]))  # type: ignore[arg-type]
        with pytest.raises(InvalidRequest, match="missing a required argument: 'width'"):
            group.submit(area)  # type: ignore[call-overload]
        assert group.refresh().tasks_total == total

    @pytest.mark.spec("S001-46")
    def test_a_call_after_others_and_what_a_failure_does_to_it(self, group: SyncTaskGroup) -> None:
        first = group.submit(area, 1, 2)
        second = group.submit_after([first], area, 3, 4)
        third = group.submit_task({"command": ["true"]}, after=[second, first])
        assert third.result(60).state == "succeeded"
        assert second.task is not None, "both ended before it"
        number = second.task.task_id
        assert group.submit_after([number], area, 1).result(60) == (1, 1.0), "after one that ended"
        bad = group.submit(fails, "x")
        child = group.submit_after([bad], area, 1, 1)
        with pytest.raises(TaskFailed):
            child.result(60)
        assert child.task is not None
        assert child.task.kind == "dependency_failed"
        with pytest.raises(InvalidRequest, match="future of a task"):
            group.submit_after(["x"], area, 1, 1)  # type: ignore[list-item]

    def test_tasks_of_any_kind(self, group: SyncTaskGroup) -> None:
        ended = group.submit_task({"command": ["sh", "-c", "echo out; exit 3"]}).result(60)
        assert (ended.state, ended.exit_code) == ("failed", 3)
        with pytest.raises(InvalidRequest, match=r"^task.command: must name a program"):
            group.submit_task({"command": []})

    def test_results_end_when_nothing_is_unfinished_and_generators_may_ask_meanwhile(
        self, group: SyncTaskGroup
    ) -> None:
        now = group.refresh()
        after = now.tasks_total - now.tasks_unfinished
        echoes = ({"command": ["echo", str(group.info.tasks_total * 0 + n)]} for n in range(3))
        first = set(group.submit_tasks(echoes))
        assert {task.task_id for task in group.results(after=after)} == first
        # Without the number it goes on for as long as parts are sent before it looks for more.
        again = (
            {"command": ["echo", "again"], "labels": [str(task.task_id)]}
            for task in islice(group.results(after=after), 3)
        )
        second = set(group.submit_tasks(again))
        assert len(second) == 3
        assert {task.task_id for task in group.results(after=after + 3)} == second

    async def test_inside_a_running_event_loop_as_in_a_notebook(self, group: SyncTaskGroup) -> None:
        assert group.submit(area, 2).result(60) == (2, 2.0)
        assert list(group.map(area, [1])) == [(1, 1.0)]


# --- async


async def test_the_async_twin(address: tuple[str, str]) -> None:
    async def slowly() -> AsyncIterator[int]:
        for number in range(3):
            await asyncio.sleep(0)
            yield number

    async with Client(*address) as client, client.task_group(workers=2) as group:
        futures = [group.submit(area, width) for width in range(4)]
        assert await asyncio.gather(*futures) == [(n, n * 1.0) for n in range(4)]
        assert [width async for width, _ in group.map(area, slowly())] == [0, 1, 2]
        unordered = group.starmap(area, [(1, 2.0)], ordered=False)
        assert [result async for result in unordered] == [(1, 2.0)]
        with pytest.raises(TaskFailed, match="no row 1"):
            await group.submit(fails, "1")
        ids = await group.submit_tasks({"command": ["true"]} for _ in range(3))
        seen = [task.task_id async for task in group.results()]
        assert set(ids) <= set(seen)
        assert len(seen) == len(set(seen))
        left = group.submit(later, 1)
    assert await left == {1: "done"}  # the block has waited for it
    assert (group.info.state, group.info.settled) == (TaskGroupState.COMPLETE, True)
    assert group.info.result == "tasks_failed"


# --- how a block ends


def fail_while(group: SyncTaskGroup, path: str, left: list[SyncTaskFuture[int]]) -> None:
    """Have a task wait for a file, and raise in the program meanwhile."""
    left.append(group.submit(wait_for, path))
    raise LookupError


def test_an_exception_cancels_and_goes_on(client: SyncClient) -> None:
    left: list[SyncTaskFuture[int]] = []
    with pytest.raises(LookupError), client.task_group() as group:
        fail_while(group, "/never", left)
    assert group.refresh().state is TaskGroupState.CANCELLED
    assert group.info.reason == "LookupError in the program that submits"
    with pytest.raises((TaskFailed, TaskNotRun)):
        left[0].result(60)


def test_what_is_to_be_kept_is_kept(client: SyncClient, tmp_path: Path) -> None:
    left: list[SyncTaskFuture[int]] = []
    with client.task_group("kept", on_exit="leave") as group:
        group.submit_tasks([{"command": ["true"]}])
    assert group.refresh().state is TaskGroupState.OPEN
    with pytest.raises(LookupError), client.task_group(group.info, on_error="leave"):
        raise LookupError
    assert group.refresh().state is TaskGroupState.OPEN
    with pytest.raises(LookupError), client.task_group(group.info, on_error="close") as again:
        fail_while(again, str(tmp_path / "go"), left)
    assert group.refresh().state is TaskGroupState.CLOSED
    with pytest.raises(TaskNotRun, match="ended before this task"):
        left[0].result(60)
    (tmp_path / "go").touch()
    assert client.wait("kept", timeout=timedelta(seconds=60)).tasks_succeeded == 2
    with pytest.raises(AlreadyExists), client.task_group("kept"):
        pass


def test_cancelled_futures_cancel_their_tasks(client: SyncClient, tmp_path: Path) -> None:
    begun, never = tmp_path / "begun", str(tmp_path / "never")
    with client.task_group(workers=1) as group:
        running = group.submit_task({"command": ["sh", "-c", f"touch {begun}; exec sleep 600"]})
        wait_until(begun.exists)
        waiting = [group.submit(wait_for, never) for _ in range(3)]
        kept = group.submit(area, 2)
        futures: list[SyncTaskFuture[Any]] = [running, *waiting]
        for future in futures:
            assert future.cancel()
            assert future.cancel(), "again"
            assert future.cancelled()
        assert kept.result(60) == (2, 2.0), "the worker is free again"
        assert not kept.cancel()
        assert concurrent.futures.wait(futures, timeout=1).not_done == set()
    assert group.info.tasks_succeeded == 1
    assert group.info.tasks_cancelled == group.info.tasks_total - 1, "some were never submitted"
    with client.task_group() as group:
        unsent = [group.submit(wait_for, never) for _ in range(3)]
        assert all(future.cancel() for future in unsent)
    assert group.info.tasks_succeeded == 0
    assert group.info.tasks_cancelled == group.info.tasks_total


def test_a_group_that_was_ended_inside_ends_well(client: SyncClient) -> None:
    with client.task_group() as group:
        group.cancel(reason="enough")
        with pytest.raises(TaskGroupClosed):
            group.submit(area, 1).result(60)
    assert group.info.result == "cancelled"


def test_outside_its_block_it_says_how_it_is_used(client: SyncClient) -> None:
    with pytest.raises(RuntimeError, match="in a with block"):
        client.task_group().submit(area, 1)


SCRIPT = """
import asyncio, pathlib, sys, time
from mitosis import Client, SyncClient, handler

@handler
def hangs(path: str) -> None:
    pathlib.Path(path).touch()
    time.sleep(60)

def plain():
    with SyncClient.connect() as client, client.task_group("plain") as group:
        group.submit(hangs, sys.argv[2]).result()

async def waits():
    async with Client.connect() as client, client.task_group("waits") as group:
        await group.submit(hangs, sys.argv[2])

def at_exit():
    with SyncClient.connect() as client, client.task_group("at_exit") as group:
        group.submit(hangs, sys.argv[2])

if __name__ == "__main__":
    if sys.argv[1] == "waits":
        asyncio.run(waits())
    else:
        globals()[sys.argv[1]]()
"""


@pytest.mark.parametrize("how", ["plain", "waits", "at_exit"])
def test_ctrl_c_cancels(client: SyncClient, stack: Path, tmp_path: Path, how: str) -> None:
    """In a script of its own, whose function the workers import from it."""
    script, began = tmp_path / "hanging.py", tmp_path / "began"
    script.write_text(SCRIPT)
    environment = clean_environment(MITOSIS_DATA_DIR=str(stack), PYTHONPATH=str(ROOT))
    with subprocess.Popen(
        [*python(environment), str(script), how, str(began)],
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        wait_until(lambda: began.exists() or process.poll() is not None, 60)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert process.returncode in (-signal.SIGINT, 130), said
    assert said.rstrip().endswith("KeyboardInterrupt"), said
    assert client.group(how).state is TaskGroupState.CANCELLED


LEFT = """
import asyncio, gc, logging, sys
from mitosis import Client, SyncClient
from tests.support.sdk_functions import area, fails, wait_for

# With -X dev, asyncio also logs each step above 0.1 s: that is how busy the machine is.
logging.getLogger("asyncio").addFilter(lambda record: "Executing" not in record.getMessage())

def broken():
    yield "1"
    raise LookupError("of the generator")

async def succeed(client, group):
    group.submit(area, 1)

async def fail(client, group):
    group.submit(fails, "1")

async def cancel(client, group):
    group.submit(wait_for, "/never")
    await group.cancel()

async def error(client, group):
    group.submit(wait_for, "/never")
    raise LookupError("of the block")

async def give_up(client, group):
    async for _ in group.map(fails, broken(), return_exceptions=True):
        await asyncio.sleep(0)
        break
    await group.cancel()

async def keep(client, group):
    kept.append(group.map(area, range(100), buffer_size=2))
    await anext(kept[-1])
    await group.cancel()

async def close_client(client, group):
    group.submit(area, 1)
    await client.aclose()

async def block(body, on_exit):
    async with Client.connect() as client, client.task_group(on_exit=on_exit) as group:
        await body(client, group)

def run(work):
    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(work)
    except Exception as error:
        print(type(error).__name__, error)
    loop.close()  # at once, unlike asyncio.run
    gc.collect()

if __name__ == "__main__":
    kept = []
    for body in (give_up, keep, cancel, error, succeed, fail, close_client):
        run(block(body, "close"))
    run(block(succeed, "leave"))
    kept.clear()
    gc.collect()
    with SyncClient.connect() as client:
        for function, argument in ((area, 1), (fails, "1")):
            with client.task_group(on_exit="close") as group:
                group.submit(function, argument)
    try:
        group.submit(area, 1)
    except Exception as error:
        print(error)
"""


def test_whatever_is_left_behind_nothing_is_said_of_it(stack: Path, tmp_path: Path) -> None:
    """As a program that shows all its warnings, and that closes its event loop at once."""
    script = tmp_path / "leaving.py"
    script.write_text(LEFT)
    done = subprocess.run(
        [sys.executable, "-X", "dev", str(script)],
        env=clean_environment(MITOSIS_DATA_DIR=str(stack), PYTHONPATH=str(ROOT)),
        capture_output=True,
        text=True,
        check=False,
        timeout=110,
    )
    assert (done.stderr, done.returncode) == ("", 0)
    said = done.stdout.splitlines()
    assert said[0] == "LookupError of the block"
    assert all("this client has been closed" in line for line in said[1:]), said
    assert len(said) == 3


# --- finding the stack


def test_connect_finds_what_the_command_line_finds(
    stack: Path, address: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("MITOSIS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("MITOSIS_DATA_DIR", str(stack))
    with SyncClient.connect() as client:
        assert client.me().is_admin
    monkeypatch.setenv("MITOSIS_DATA_DIR", str(tmp_path / "none"))
    with pytest.raises(ApiUnavailable) as nothing:
        SyncClient.connect()
    assert "mitosis up" in nothing.value.facts["hint"]
    monkeypatch.setenv("MITOSIS_API_URL", address[0])
    monkeypatch.setenv("MITOSIS_TOKEN", address[1])
    with SyncClient.connect(give_up_after=timedelta(seconds=10)) as client:
        assert client.me().is_admin


def test_a_spec_keeps_what_it_says(client: SyncClient) -> None:
    spec = TaskGroupSpec.model_validate(
        {"name": "spec", "worker_allocation_plan": {"python_path": ["/opt/none"]}, "priority": 3}
    )
    with client.task_group(spec, workers=2) as group:
        plan = group.info.worker_allocation_plan
        assert (plan.python_path, plan.worker_count, group.info.priority) == (("/opt/none",), 2, 3)
