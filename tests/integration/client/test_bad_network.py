"""The SDK before a real API, over a network that cuts connections and is told to come back later."""

import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from api.service import ApiOptions, admin_token, running_api
from mitosis.client.client import Client
from mitosis.contracts.errors import ApiUnavailable, MitosisError
from mitosis.contracts.http import TaskGroupSpec
from mitosis.embedded.data_folder import ed25519_private_key
from mitosis.store.store import StoreOptions
from tests.support.cut_proxy import CUT, CutProxy, busy, cut_proxy
from tests.support.http_api import NoTemporal


@pytest.fixture
async def api(database: str) -> AsyncIterator[Client]:
    """A client that reaches the API past every proxy."""
    options = ApiOptions(
        store=StoreOptions(database_url=database),
        signing_key=ed25519_private_key(),
        temporal_namespace="mitosis",
    )
    async with running_api(options, NoTemporal()) as running:
        token = (await admin_token(running.app_state)).token
        async with Client(running.url, token) as client:
            await client.create_group(TaskGroupSpec(name="work"))
            yield client


def through(
    proxy: CutProxy, api: Client, give_up_after: timedelta = timedelta(seconds=20)
) -> Client:
    token = api._api._http.headers["Authorization"].removeprefix("Bearer ")
    return Client(f"http://127.0.0.1:{proxy.port}", token, give_up_after=give_up_after)


TASKS = [{"command": ["true"]}] * 7


async def test_answers_that_were_cut_off_leave_no_duplicates(api: Client) -> None:
    url = api._api.url
    async with cut_proxy(url, b"/tasks", CUT, CUT) as proxy, through(proxy, api) as client:
        ids = await client.submit("work", TASKS)
    assert len(proxy.times) == 3
    assert [task.task_id async for task in api.tasks("work")] == sorted(ids)
    assert len(set(ids)) == 7


async def test_a_whole_submission_again_under_its_key_creates_nothing_twice(api: Client) -> None:
    first = await api.submit("work", TASKS, idempotency_key="night-12")
    assert await api.submit("work", TASKS, idempotency_key="night-12") == first
    assert (await api.group("work")).tasks_total == 7


async def test_a_group_whose_answer_was_cut_off_is_the_programs_own(api: Client) -> None:
    acts = (CUT, busy("503 Service Unavailable", "0"), CUT)
    async with (
        cut_proxy(api._api.url, b"POST /api/v1/task-groups HTTP", *acts) as proxy,
        through(proxy, api) as client,
        client.task_group(on_exit="leave") as group,
    ):
        assert len(proxy.times) == 4
        ours = await api.group(group.info.name)
    assert ours.task_group_id == group.info.task_group_id
    assert len([found async for found in api.groups()]) == 2


@pytest.mark.parametrize("status", ["429 Too Many Requests", "503 Service Unavailable"])
async def test_it_comes_back_when_it_was_told_to(api: Client, status: str) -> None:
    async with (
        cut_proxy(api._api.url, b"/tasks", busy(status, "1")) as proxy,
        through(proxy, api) as client,
    ):
        await client.submit("work", TASKS)
    first, second = proxy.times
    assert second - first >= 1


async def test_a_date_is_understood_too(api: Client) -> None:
    soon = format_datetime(datetime.now(UTC) + timedelta(seconds=2), usegmt=True)
    async with (
        cut_proxy(api._api.url, b"/tasks", busy("503 Service Unavailable", soon)) as proxy,
        through(proxy, api) as client,
    ):
        await client.submit("work", TASKS)
    first, second = proxy.times
    assert second - first >= 0.5  # a date has whole seconds


@pytest.mark.parametrize(
    ("act", "error"),
    [(busy("503 Service Unavailable", "3600"), ApiUnavailable), (CUT, ApiUnavailable)],
    ids=["asked for an hour", "cut off"],
)
async def test_it_gives_up_in_time(api: Client, act: bytes, error: type[MitosisError]) -> None:
    began = time.monotonic()
    async with (
        cut_proxy(api._api.url, b"/tasks", *[act] * 100) as proxy,
        through(proxy, api, timedelta(seconds=0.6)) as client,
    ):
        with pytest.raises(error):
            await client.submit("work", TASKS)
    assert time.monotonic() - began < 10
    assert (len(proxy.times) > 1) == (act == CUT)
