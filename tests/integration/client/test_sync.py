"""The synchronous SDK, over a socket, from a program without an event loop of its own."""

import asyncio
import inspect
from collections.abc import Iterator
from concurrent.futures import Future
from datetime import timedelta
from threading import Thread

import pytest

import mitosis
from api.service import ApiOptions, admin_token, running_api
from mitosis.client.client import Client
from mitosis.client.submitting import Task
from mitosis.client.sync import SyncClient
from mitosis.contracts.errors import AlreadyExists, InvalidRequest, Unauthenticated
from mitosis.contracts.http import RegisterManager, TaskGroupSpec, TaskGroupUpdate
from mitosis.contracts.lifecycle import TaskGroupState, TaskState
from mitosis.embedded.data_folder import ed25519_private_key
from mitosis.store.store import StoreOptions
from tests.support.http_api import NoTemporal
from tests.support.sdk_functions import later


@pytest.fixture
def address(database: str) -> Iterator[tuple[str, str]]:
    """URL and admin token of an API that runs in another thread."""
    ready: Future[tuple[str, str]] = Future()
    stop: Future[None] = Future()
    serving = Thread(target=lambda: asyncio.run(_serve(database, ready, stop)))
    serving.start()
    yield ready.result(30)
    stop.set_result(None)
    serving.join(20)


async def _serve(database: str, ready: Future[tuple[str, str]], stop: Future[None]) -> None:
    options = ApiOptions(
        store=StoreOptions(database_url=database),
        signing_key=ed25519_private_key(),
        temporal_namespace="mitosis",
    )
    try:
        async with running_api(options, NoTemporal()) as api:
            ready.set_result((api.url, (await admin_token(api.app_state)).token))
            await asyncio.wrap_future(stop)
    except BaseException as error:
        if not ready.done():
            ready.set_exception(error)
        raise


def test_a_program_without_async(address: tuple[str, str]) -> None:
    url, token = address
    with mitosis.SyncClient(url, token) as client:
        assert client.me().is_admin
        client.create_group(mitosis.TaskGroupSpec(name="work"))
        with pytest.raises(AlreadyExists):
            client.create_group(TaskGroupSpec(name="work"))
        tasks = (mitosis.TaskSubmission(command=["echo", str(i)]) for i in range(20_500))
        ids = client.submit("work", tasks)
        assert len(set(ids)) == 20_500
        seen = client.tasks("work", state=TaskState.READY)
        first = next(seen)
        assert client.task(first.task_uuid).task_id == first.task_id
        assert [group.name for group in client.groups(state=TaskGroupState.OPEN)] == ["work"]
        assert client.update_group("work", TaskGroupUpdate(priority=3)).priority == 3
        assert client.close_group("work").state is TaskGroupState.CLOSED
        assert client.reopen("work").state is TaskGroupState.OPEN
        made = client.register_manager(RegisterManager(name="host"))
        assert [m.manager_id for m in client.managers()] == [made.manager_id]
        assert client.manager(made.manager_id).name == "host"
        assert client.complete("work", force=True).state is not TaskGroupState.OPEN
        assert client.wait("work", timeout=timedelta(seconds=0.1)).tasks_total == 20_500
    with SyncClient(url, "x.y.z") as client, pytest.raises(Unauthenticated):
        client.me()
    with SyncClient(url) as client, pytest.raises(Unauthenticated):
        client.login("admin", "guess")


NAMED: Task = {"named_task": "images/resize@1.4.0", "arguments": {"file": "a.png"}}


def test_a_group_of_worker_services_takes_named_tasks(address: tuple[str, str]) -> None:
    with SyncClient(*address) as client:
        spec = TaskGroupSpec(name="sync", kind="service")
        with client.task_group(spec, on_exit="leave") as group:
            (number,) = group.submit_tasks([NAMED])
            with pytest.raises(InvalidRequest, match="submit_task"):
                group.submit(later, 1)
        assert [one.task_id for one in client.tasks("sync")] == [number]
        assert asyncio.run(_submitted_to_services(*address)) == "service"
        assert len(list(client.tasks("async"))) == 1


async def _submitted_to_services(url: str, token: str) -> str:
    async with Client(url, token) as client:
        spec = TaskGroupSpec(name="async", kind="service")
        async with client.task_group(spec, on_exit="leave") as group:
            await group.submit_tasks([NAMED])
            with pytest.raises(InvalidRequest, match="submit_task"):
                group.submit(later, 1)
            return group.info.kind


def test_the_twins_have_the_same_methods() -> None:
    def methods(cls: type) -> dict[str, list[str]]:
        return {
            name: list(inspect.signature(method).parameters)
            for name, method in inspect.getmembers(cls, inspect.isfunction)
            if not name.startswith("_")
        }

    plain, other = methods(SyncClient), methods(Client)
    del plain["close"], other["aclose"]
    assert plain == other
