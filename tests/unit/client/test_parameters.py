"""What the SDK is given is checked before anything is made or sent, under the caller's name for it."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import uuid4

import httpx2
import pytest

from mitosis import (
    Client,
    CpuBinding,
    HookSpec,
    RetryPolicy,
    SyncClient,
    TaskGroupSpec,
    TaskSubmission,
    WorkerAllocationPlan,
    handler,
)
from mitosis.contracts.errors import InvalidRequest
from mitosis.contracts.http import RegisterManager, TaskGroupUpdate
from mitosis.contracts.task import MAX_ATTEMPTS
from tests.support.sdk_functions import area

URL = "http://127.0.0.1:9"


class Unreachable(httpx2.AsyncBaseTransport):
    """Any request at all is one too many."""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        raise AssertionError(f"{request.method} {request.url} was sent")


TASK_OPTIONS: list[tuple[str, Any]] = [
    ("retries", -1),
    ("retries", MAX_ATTEMPTS),
    ("retries", "x"),
    ("retries", None),
    ("retries", True),
    ("timeout", -1),
    ("timeout", 0),
    ("timeout", "abc"),
    ("timeout", float("nan")),
    ("timeout", float("inf")),
    ("timeout", timedelta(seconds=-1)),
    ("retry_delay", -1),
    ("retry_delay", "soon"),
    ("priority", "x"),
    ("priority", 2**31),
    ("environment", "A=1"),
    ("environment.A", {"A": 1}),
    ("environment", {1: "A"}),
    ("environment.MITOSIS_X", {"MITOSIS_X": "1"}),
    ("environment.A=", {"A=": "1"}),
    ("environment.A", {"A": "\0"}),
    ("working_directory", "here"),
    ("working_directory", 3),
    ("labels", "abc"),
    ("labels[0]", [1]),
    ("retry", 1),
]

BAD_SPEC = {"name": "a", "worker_allocation_plan": {"worker_count": 0}}
BAD_RETRY = {"retry": {"max_attempts": 0}}

# A call, and before it the parameter that it gets wrong.
CLIENT: list[tuple[str, Callable[[Any], Any]]] = [
    ("workers", lambda c: c.task_group(workers=0)),
    ("workers", lambda c: c.task_group(workers=-1)),
    ("workers", lambda c: c.task_group(workers="many")),
    ("workers", lambda c: c.task_group(TaskGroupSpec(name="a"), workers=10**6)),
    ("group", lambda c: c.task_group("no name")),
    ("group", lambda c: c.task_group("")),
    ("group", lambda c: c.task_group(17)),
    ("on_exit", lambda c: c.task_group(on_exit="stay")),
    ("on_error", lambda c: c.task_group(on_error="wait")),
    ("patience", lambda c: c.task_group(patience=timedelta(seconds=-1))),
    ("username", lambda c: c.login(1, "x")),
    ("password", lambda c: c.login("x", 1)),
    ("spec.worker_allocation_plan.worker_count", lambda c: c.create_group(BAD_SPEC)),
    ("group", lambda c: c.group("")),
    ("group", lambda c: c.group("a/b/c")),
    ("group", lambda c: c.group("a?b=1")),
    ("group", lambda c: c.group(None)),
    ("state", lambda c: c.groups(state="running")),
    ("settled", lambda c: c.groups(settled="maybe")),
    ("tag", lambda c: c.groups(tag=1)),
    ("update.max_managers", lambda c: c.update_group("a", {"max_managers": 0})),
    ("group", lambda c: c.delete_group("a b")),
    ("reason", lambda c: c.close_group("a", reason=1)),
    ("group", lambda c: c.reopen("/")),
    ("grace", lambda c: c.cancel("a", grace=timedelta(seconds=-1))),
    ("grace", lambda c: c.cancel("a", grace=timedelta(days=2))),
    ("cancel_running_tasks", lambda c: c.cancel("a", cancel_running_tasks="some")),
    ("grace", lambda c: c.complete("a", grace="abc")),
    ("timeout", lambda c: c.wait("a", timeout=timedelta(seconds=-1))),
    ("timeout", lambda c: c.wait("a", timeout="abc")),
    ("until", lambda c: c.wait("a", until="tomorrow")),
    ("idempotency_key", lambda c: c.submit("a", [], idempotency_key="")),
    ("tasks", lambda c: c.submit("a", 5)),
    ("tasks", lambda c: c.submit("a", "gzip file")),
    ("tasks", lambda c: c.submit("a", {"command": ["true"]})),
    ("tasks", lambda c: c.submit("a", TaskSubmission(command=["true"]))),
    ("tasks[1]", lambda c: c.submit("a", [{"command": ["true"]}, "true"])),
    ("tasks[1].command", lambda c: c.submit("a", [{"command": ["true"]}, {"command": "true"}])),
    ("tasks[0].retry.max_attempts", lambda c: c.submit("a", [{"command": ["true"], **BAD_RETRY}])),
    ("tasks[0].comand", lambda c: c.submit("a", [{"comand": ["true"]}])),
    ("tasks[0]", lambda c: c.submit("a", [{}])),
    ("tasks[0].arguments", lambda c: c.submit("a", [{"handler": "a:b", "arguments": [object()]}])),
    ("state", lambda c: c.tasks("a", state="late")),
    ("after", lambda c: c.results("a", after=-1)),
    ("after", lambda c: c.results_page("a", after="x")),
    ("wait", lambda c: c.results_page("a", wait=timedelta(minutes=5))),
    ("after", lambda c: c.events("a", after=-1)),
    ("on_outage", lambda c: c.events("a", on_outage=1)),
    ("reasons[0]", lambda c: c.retry("a", reasons=["bad luck"])),
    ("into", lambda c: c.retry("a", into="b c")),
    ("group", lambda c: c.explain("")),
    ("task_uuid", lambda c: c.explain_task("x")),
    ("task_uuid", lambda c: c.task_output("x")),
    ("patience", lambda c: c.task_output(uuid4(), patience=timedelta(seconds=-1))),
    ("after", lambda c: c.group_output("a", after=-1)),
    ("task_uuid", lambda c: c.task(1)),
    ("manager.name", lambda c: c.register_manager({"name": "a b"})),
    ("manager_id", lambda c: c.manager("x")),
    ("manager_id", lambda c: c.retry_setup("x")),
    ("group", lambda c: c.release_quarantine(uuid4(), "")),
    ("group", lambda c: c.group_managers("")),
    ("manager_ids", lambda c: c.add_managers("a", [])),
    ("manager_ids[0]", lambda c: c.remove_managers("a", ["x"])),
    ("group", lambda c: c.refresh_managers("")),
]

MODELS: list[tuple[str, Callable[[], Any]]] = [
    ("name", lambda: TaskGroupSpec(name="no name")),
    ("tags", lambda: TaskGroupSpec(name="a", tags="gpu")),  # type: ignore[arg-type]
    ("tags[0]", lambda: TaskGroupSpec(name="a", tags=frozenset({"two words"}))),
    ("labels[0]", lambda: TaskGroupSpec(name="a", labels=frozenset({""}))),
    ("auto_close_timeout", lambda: TaskGroupSpec(name="a", auto_close_timeout="x")),  # type: ignore[arg-type]
    ("max_manager", lambda: TaskGroupSpec(name="a", max_manager=1)),  # type: ignore[call-arg]
    ("max_managers", lambda: TaskGroupUpdate(max_managers=0)),
    ("lifetime", lambda: RegisterManager(lifetime=timedelta())),
    ("worker_count", lambda: WorkerAllocationPlan(worker_count=0)),
    ("python_path", lambda: WorkerAllocationPlan(python_path=("lib",))),
    ("environment.A=", lambda: WorkerAllocationPlan(environment={"A=": ""})),
    ("cores", lambda: CpuBinding(cores=(1, 1))),
    ("command", lambda: HookSpec(command="gzip")),  # type: ignore[arg-type]
    ("environment", lambda: HookSpec(command=("true",), environment={"": "x"})),
    ("timeout", lambda: HookSpec(command=("true",), timeout=timedelta())),
    ("max_attempts", lambda: RetryPolicy(max_attempts=0)),
    ("delay_seconds", lambda: RetryPolicy(delay_seconds=-1)),
    ("command", lambda: TaskSubmission(command="gzip")),  # type: ignore[arg-type]
    ("command", lambda: TaskSubmission(command=[])),
    ("timeout_seconds", lambda: TaskSubmission(command=["true"], timeout_seconds=-1)),
    ("priority", lambda: TaskSubmission(command=["true"], priority="x")),  # type: ignore[arg-type]
    (
        "environment.MITOSIS_X",
        lambda: TaskSubmission(command=["true"], environment={"MITOSIS_X": ""}),
    ),
    ("labels", lambda: TaskSubmission(command=["true"], labels="ab")),  # type: ignore[arg-type]
]

CONNECTIONS: list[tuple[str, dict[str, Any]]] = [
    ("url", {"url": "localhost"}),
    ("url", {"url": 8000}),
    ("token", {"token": 1}),
    ("timeout", {"timeout": timedelta()}),
    ("timeout", {"timeout": "abc"}),
    ("give_up_after", {"give_up_after": timedelta(seconds=-1)}),
]


def refused(call: Callable[[], object]) -> str:
    """The field that a call was refused for; its message names it, too."""
    with pytest.raises(InvalidRequest) as error:
        call()
    field = str(error.value.facts["field"])
    assert field.rsplit(".", maxsplit=1)[-1] in str(error.value)
    assert "Input" not in str(error.value)
    assert len(str(error.value)) > len(field) + 5
    return field


async def used(made: Any) -> None:
    """Await or iterate whatever a method gives."""
    if hasattr(made, "__aiter__"):
        async for _ in made:
            pass
    else:
        await made


@pytest.mark.parametrize(("name", "value"), TASK_OPTIONS)
def test_the_options_of_a_task(name: str, value: object) -> None:
    options: Any = {name.split(".", maxsplit=1)[0].split("[", maxsplit=1)[0]: value}
    assert refused(lambda: handler(**options)(area.function)) == name
    assert refused(lambda: area.options(**options)) == name


@pytest.mark.parametrize(("name", "call"), CLIENT)
def test_the_methods_of_both_clients(name: str, call: Callable[[Any], Any]) -> None:
    async def asynchronous() -> None:
        async with Client(URL, "x", transport=Unreachable()) as client:
            await used(call(client))

    assert refused(lambda: asyncio.run(asynchronous())) == name
    with SyncClient(URL, "x", transport=Unreachable()) as client:
        assert refused(lambda: call(client)) == name


@pytest.mark.parametrize(("name", "make"), MODELS)
def test_what_programs_make(name: str, make: Callable[[], object]) -> None:
    assert refused(make) == name


@pytest.mark.parametrize(("name", "options"), CONNECTIONS)
@pytest.mark.parametrize("kind", [Client, SyncClient])
def test_a_wrong_option_of_a_client_is_refused_by_name(
    kind: Any, name: str, options: dict[str, Any]
) -> None:
    assert refused(lambda: kind(**{"url": URL, **options})) == name
