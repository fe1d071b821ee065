"""Following a group live over real sockets: Server-Sent Events, WebSocket, the SDK, and how each ends."""

import asyncio
import io
import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from datetime import timedelta
from typing import Any

import httpx2
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus
from websockets.typing import Subprotocol

from api.auth import Subject
from api.service import ApiOptions, admin_token, running_api
from api.shares import Share
from mitosis.client.client import Client
from mitosis.contracts.allocation import WorkerAllocationPlan
from mitosis.contracts.errors import NotFound, Unavailable
from mitosis.contracts.following import GroupEvent
from mitosis.contracts.http import RegisterManager, TaskGroupSpec
from mitosis.contracts.lifecycle import TaskGroupState
from mitosis.embedded.data_folder import ed25519_private_key
from mitosis.store.store import StoreOptions
from mitosis.store.users.accounts import add_member, create_user
from mitosis.telemetry import configure_logging
from tests.support.http_api import NoTemporal
from tests.support.manager_api import ManagerApi
from tests.support.served_group import Served, served_group
from tests.support.waiting import wait_until_async

pytestmark = pytest.mark.timeout(60)
KEY = ed25519_private_key()
TASK = {"command": ["true"]}


@pytest.fixture
async def served(database: str) -> AsyncIterator[Served]:
    async with served_group(database, Served) as it:
        yield it


async def collect(events: AsyncIterator[GroupEvent]) -> list[GroupEvent]:
    return [event async for event in events]


def seqs(events: list[GroupEvent]) -> list[int]:
    return [event.result.seq or 0 for event in events if event.result]


@pytest.mark.spec("S000-116")
async def test_a_follower_is_told_everything_in_order_and_when_it_is_over(served: Served) -> None:
    events: list[GroupEvent] = []

    async def follow() -> None:
        async for event in served.client.events("work"):
            events.append(event)  # noqa: PERF401 - seen while it grows

    following = asyncio.create_task(follow())
    await wait_until_async(lambda: bool(events), 20)
    await served.client.submit("work", [TASK] * 30)
    await served.lease()
    await wait_until_async(lambda: any(event.lease for event in events), 20)
    for _ in range(3):
        await served.run(10)
    await served.settle()
    async with asyncio.timeout(20):
        await following
    assert seqs(events) == list(range(1, 31))
    last = events[-1]
    assert last.kind == "end"
    assert last.group is not None
    assert (last.group.settled, last.cursor) == (True, 30)
    states = [(e.state.before, e.state.state) for e in events if e.state]
    assert states[0] == (None, TaskGroupState.OPEN)
    assert states[-1][1] is TaskGroupState.COMPLETE
    leases = [(e.lease.before, e.lease.state) for e in events if e.lease]
    assert leases[0][0] is None
    assert leases[-1][1] == "ended"
    totals = [e.group.tasks_completed for e in events if e.group]
    assert totals == sorted(totals)
    assert totals[-1] == 30


async def sse(served: Served, headers: dict[str, str], **params: Any) -> AsyncGenerator[Any]:
    async with (
        httpx2.AsyncClient(base_url=served.api.url, headers=served.headers) as http,
        http.sse(served.url, headers=headers, params=params) as source,
    ):
        async for event in source:
            yield event


async def test_a_browser_goes_on_behind_the_last_event_id(served: Served) -> None:
    await served.client.submit("work", [TASK] * 5)
    await served.lease()
    await served.run(5)
    async with aclosing(sse(served, {"Last-Event-ID": "3"})) as events:
        first = await anext(events)
        second = await anext(events)
    assert [(e.event, e.id, json.loads(e.data)["result"]["seq"]) for e in (first, second)] == [
        ("result", "4", 4),
        ("result", "5", 5),
    ]


@pytest.mark.parametrize("path", ["events", "output"])
@pytest.mark.parametrize("wrong", ["none of ours", "-1", "", str(2**63)])
async def test_a_place_that_is_none_is_refused_by_name(
    served: Served, path: str, wrong: str
) -> None:
    url = served.url.replace("/events", f"/{path}")
    async with httpx2.AsyncClient(base_url=served.api.url, headers=served.headers) as http:
        by_header = await http.get(url, headers={"Last-Event-ID": wrong})
        by_query = await http.get(url, params={"after": wrong})
    for answer, field in ((by_header, "Last-Event-ID"), (by_query, "after")):
        assert answer.status_code == 422
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["field"] == field


@pytest.mark.parametrize(
    ("field", "headers", "query"),
    [("Last-Event-ID", {"Last-Event-ID": "x"}, ""), ("after", {}, "?after=x")],
)
async def test_a_websocket_refuses_it_too(
    served: Served, field: str, headers: dict[str, str], query: str
) -> None:
    url = served.url.replace("http", "ws") + query
    with pytest.raises(InvalidStatus) as refused:
        async with connect(url, additional_headers={**served.headers, **headers}):
            pass
    assert refused.value.response.status_code == 422
    assert json.loads(refused.value.response.body or b"")["field"] == field


async def test_a_place_behind_the_last_result_tells_none_and_still_ends(served: Served) -> None:
    await served.client.submit("work", [TASK])
    await served.lease()
    await served.run(1)
    await served.settle()
    async with asyncio.timeout(20):
        events = await collect(served.client.events("work", after=10**15))
    assert (seqs(events), events[-1].kind) == ([], "end")


async def test_a_websocket_tells_the_same_and_says_why_it_ends(served: Served) -> None:
    await served.client.submit("work", [TASK])
    await served.lease()
    url = served.url.replace("http", "ws")
    offered = [Subprotocol("mitosis.v1"), Subprotocol(f"mitosis.token.{served.token}")]
    async with connect(url, subprotocols=offered) as socket:
        assert socket.subprotocol == "mitosis.v1"
        await served.run(1)
        await served.settle()
        async with asyncio.timeout(20):
            events = [GroupEvent.model_validate_json(text) async for text in socket]
        assert (events[-1].kind, seqs(events)) == ("end", [1])
        assert socket.close_code == 1000
    async with connect(url, additional_headers=served.headers) as socket:
        assert GroupEvent.model_validate_json(await socket.recv()).kind == "result"


async def test_who_only_reads_gets_no_value_of_an_environment_by_websocket(served: Served) -> None:
    plan = WorkerAllocationPlan(environment={"PLANTED": "planted value"})
    await served.client.create_group(TaskGroupSpec(name="planted", worker_allocation_plan=plan))
    state = served.api.app_state
    user = await create_user(state.store, "reader")
    await add_member(state.store, "admin", "reader", "read")
    reader = state.signer.issue(Subject("user", user.user_id, 1), timedelta(hours=1)).token
    url = served.url.replace("http", "ws").replace("/work/", "/admin/planted/")
    for token, value in ((reader, None), (served.token, "planted value")):
        async with connect(url, additional_headers={"Authorization": f"Bearer {token}"}) as socket:
            events = (GroupEvent.model_validate_json(text) async for text in socket)
            group = await anext(event.group async for event in events if event.group)
        assert group.worker_allocation_plan.environment == {"PLANTED": value}


async def test_a_token_in_an_address_reaches_no_log(served: Served) -> None:
    """Neither the server's nor a client's in the same process, at the lowest level."""
    out, root = io.StringIO(), logging.getLogger()
    kept = root.handlers[:], root.level
    configure_logging(level="DEBUG", log_format="json", stream=out)
    try:
        url = f"{served.url}?token={served.token}"
        async with httpx2.AsyncClient() as http:
            assert (await http.get(url, headers=served.headers)).status_code == 422
        with pytest.raises(InvalidStatus):
            async with connect(url.replace("http", "ws"), additional_headers=served.headers):
                pass
    finally:
        root.handlers[:], root.level = kept
    assert "GET /api/v1/task-groups/work/events?token=[token]" in out.getvalue(), "the client's"
    assert [line for line in out.getvalue().splitlines() if served.token[-20:] in line] == []


@pytest.mark.parametrize(("token", "status"), [(None, 401), ("none", 401), ("stranger", 404)])
async def test_who_may_not_read_the_group_is_refused_on_both(
    served: Served, token: str | None, status: int
) -> None:
    headers = {}
    if token == "stranger":
        await create_user(served.api.app_state.store, "stranger", "secret words")
        async with Client(served.api.url) as other:
            token = (await other.login("stranger", "secret words")).token
    path = served.url.replace("/work/", f"/{(await served.client.group('work')).task_group_id}/")
    if token:
        headers["Authorization"] = f"Bearer {token}"
    async with httpx2.AsyncClient() as http:
        assert (await http.get(path, headers=headers)).status_code == status
    with pytest.raises(InvalidStatus) as refused:
        async with connect(path.replace("http", "ws"), additional_headers=headers):
            pass
    assert refused.value.response.status_code == status
    assert json.loads(refused.value.response.body)["status"] == status


async def test_no_open_stream_holds_up_the_stop_of_the_server(database: str) -> None:
    options = ApiOptions(
        store=StoreOptions(database_url=database),
        signing_key=KEY,
        temporal_namespace="mitosis",
        stop_after=timedelta(seconds=30),
    )
    async with running_api(options, NoTemporal()) as api:
        token = (await admin_token(api.app_state)).token
        client = Client(api.url, token, give_up_after=timedelta(0))
        await client.create_group(TaskGroupSpec(name="work"))
        headers = {"Authorization": f"Bearer {token}"}
        url = api.url.replace("http", "ws") + "/api/v1/task-groups/work/events"
        socket = await connect(url, additional_headers=headers)
        events = client.events("work")
        await anext(events)
        await socket.recv()
        began = asyncio.get_running_loop().time()
    assert asyncio.get_running_loop().time() - began < 3
    with pytest.raises(Unavailable):
        await collect(events)
    await socket.wait_closed()
    assert socket.close_code == 1012
    await client.aclose()


async def test_a_follower_goes_on_where_it_was_when_the_api_is_back(database: str) -> None:
    def options(port: int) -> ApiOptions:
        return ApiOptions(
            store=StoreOptions(database_url=database),
            signing_key=KEY,
            temporal_namespace="mitosis",
            port=port,
        )

    outages = []
    async with running_api(options(0), NoTemporal()) as api:
        token = (await admin_token(api.app_state)).token
        client = Client(api.url, token, give_up_after=timedelta(seconds=20))
        registered = await client.register_manager(RegisterManager(name="host-1"))
        manager = ManagerApi(api.url, registered.token)
        await client.create_group(TaskGroupSpec(name="work"))
        await client.submit("work", [TASK] * 4)
        served = Served(api, token, client, manager)
        await served.lease()
        await served.run(2)
        events = client.events("work", on_outage=lambda error: outages.append(error.code))
        told = [await anext(events) for _ in range(3)]
        port = int(api.url.rsplit(":", 1)[1])
    rest = asyncio.create_task(collect(events))
    async with running_api(options(port), NoTemporal()) as api:
        served.api = api
        await served.run(2)
        await served.settle()
        async with asyncio.timeout(20):
            told += await rest
        assert seqs(told) == [1, 2, 3, 4]
        assert outages
        with pytest.raises(NotFound):
            await collect(client.events("nothing"))
    manager.close()
    await client.aclose()


async def test_more_streams_than_there_is_room_for_are_asked_to_come_back(served: Served) -> None:
    served.api.app_state.streams.shares = Share(2)  # of which one is left for others
    async with aclosing(sse(served, {})) as events:
        await anext(events)
        async with httpx2.AsyncClient() as http:
            answer = await http.get(served.url, headers=served.headers)
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "5")


async def test_a_client_that_leaves_frees_its_place(served: Served) -> None:
    shares = served.api.app_state.streams.shares
    async with aclosing(sse(served, {})) as events:
        await anext(events)
        assert shares.used == 1
    async with asyncio.timeout(10):
        while shares.used:
            await served.client.submit("work", [TASK])
