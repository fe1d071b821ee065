"""The API under pressure: full queues, too much at the same time, slow and silent peers, values that bite."""

import asyncio
import gc
import json
import resource
import socket
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import httpx2
import psycopg
import pytest

from api.admission import Admission
from api.app import create_app
from api.bounded_protocol import KEPT_DESCRIPTORS, BoundedProtocol, most_connections
from api.server import serving
from api.service import ApiOptions, admin_token, open_app_state
from api.shares import Share
from mitosis.client.client import Client
from mitosis.contracts.http import TaskGroupSpec
from mitosis.embedded.data_folder import ed25519_private_key
from mitosis.store.store import QueueLimits, StoreOptions
from mitosis.store.tasks.queue_limits import check_queue_limits
from tests.support.campaigns import World, world
from tests.support.http_api import NAMESPACE, Api, NoTemporal, in_process_api, problem
from tests.support.waiting import wait_until_async

TASKS = "/task-groups/work/tasks"
OK = {"command": ["true"]}


@pytest.fixture
async def api(database: str) -> AsyncIterator[Api]:
    async with in_process_api(database) as opened:
        async with opened.client() as client:
            await client.create_group(TaskGroupSpec(name="work"))
        yield opened


# --- queues -----------------------------------------------------------------------------------------


async def limited_api(database: str, **limits: int) -> Any:
    options = ApiOptions(
        store=StoreOptions(database_url=database, queue_limits=QueueLimits(**limits)),
        signing_key=ed25519_private_key(),
        temporal_namespace=NAMESPACE,
    )
    return open_app_state(options, NoTemporal())


@pytest.mark.parametrize("limits", [{"per_group": 600}, {"per_user": 600}, {"total": 600}])
async def test_a_full_queue_refuses_the_whole_submit_and_the_sdk_waits(
    database: str, limits: dict[str, int], caplog: pytest.LogCaptureFixture
) -> None:
    async with await limited_api(database, **limits) as state:
        transport = httpx2.ASGITransport(create_app(state))
        api = Api(state, transport, (await admin_token(state)).token)
        async with api.client() as client:
            await client.create_group(TaskGroupSpec(name="work"))
            first = await client.submit("work", [OK] * 550, idempotency_key="k")
            for more in ([OK] * 51, [OK] * 501, [{**OK, "dedup_key": "d"}] * 51):
                await until_counted(api, more)
            await check_queue_limits(state.store, await group_id(client), 50)
            assert await client.submit("work", [OK] * 550, idempotency_key="k") == first
            assert len(await client.submit("work", [OK] * 50)) == 50
            assert (await client.group("work")).tasks_total == 600
            answer = await api.call("POST", TASKS, json={"tasks": [OK] * 601})
            with problem(answer, 413, "too_large") as document:
                assert document["limit"] == 600
            caplog.set_level("INFO", "mitosis.client.repeating")
            client.give_up_after = timedelta(seconds=0)
            waiting = asyncio.create_task(client.submit("work", [OK]))
            with psycopg.connect(database, autocommit=True) as connection:
                await wait_until_async(lambda: waiting.done() or "call.repeated" in caplog.messages)
                connection.execute("DELETE FROM open_task WHERE id <= 10")
                connection.execute(
                    "UPDATE group_live SET unfinished = unfinished - 10, cancelled = 10"
                )
            assert len(await waiting) == 1


async def group_id(client: Client) -> Any:
    return (await client.group("work")).task_group_id


async def until_counted(api: Api, tasks: list[dict[str, Any]]) -> None:
    """Submit more than there is room for, until the sums are new; it is never taken."""
    api.app_state.store.queue_counts.clear()
    answer = await api.call("POST", TASKS, json={"tasks": tasks})
    with problem(answer, 429, "queue_full") as document:
        assert (document["unfinished"], document["limit"]) == (550, 600)
        assert answer.headers["retry-after"] == "5"


# --- too much at the same time ----------------------------------------------------------------------


async def test_bodies_and_requests_have_a_limit_at_the_same_time(api: Api) -> None:
    admission = Admission(max_requests=2, max_body_bytes=2000)
    admission.shares = Share(4)  # the limit of all is what refuses here
    state = replace(api.app_state, admission=admission)
    crowded = Api(state, httpx2.ASGITransport(create_app(state)), api.token)
    too_much = await crowded.call("POST", TASKS, content=b" " * 1001)
    with problem(too_much, 503, "overloaded"):
        assert too_much.headers["retry-after"] == "1"
    with problem(await crowded.call("POST", TASKS, content=chunks(b" " * 600)), 503, "overloaded"):
        pass
    held = [
        asyncio.create_task(crowded.call("GET", "/task-groups/work/results?wait_seconds=2"))
        for _ in range(2)
    ]
    await wait_until_async(lambda: admission.requests == 2)
    with problem(await crowded.call("GET", "/me"), 503, "overloaded"):
        pass
    assert [answer.status_code for answer in await asyncio.gather(*held)] == [200, 200]
    await wait_until_async(lambda: (admission.requests, admission.bodies.used) == (0, 0))
    assert (await crowded.call("GET", "/me")).status_code == 200


async def chunks(chunk: bytes) -> AsyncIterator[bytes]:
    for _ in range(2):
        yield chunk


# --- slow and silent peers --------------------------------------------------------------------------


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limits of a request's arrival, in hundredths of a second."""
    for name in ("head_seconds", "pause_seconds"):
        monkeypatch.setattr(BoundedProtocol, name, 0.2)
    monkeypatch.setattr(BoundedProtocol, "request_seconds", 0.6)
    monkeypatch.setattr(BoundedProtocol, "look_seconds", 0.02)


HEAD = b"POST /api/v1/task-groups/work/tasks HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n"


BEGINNINGS = [b"", HEAD[:9], HEAD, HEAD + b"\r\n", HEAD + b"\r\n12"]


@pytest.mark.usefixtures("hasty")
async def test_a_peer_that_stops_in_the_middle_is_let_go(api: Api) -> None:
    async with serving(create_app(api.app_state)) as url:
        peers = [connected(url) for _ in BEGINNINGS]
        for peer, beginning in zip(peers, BEGINNINGS, strict=True):
            peer.sendall(beginning)
        assert all(await asyncio.gather(*map(ended, peers)))
        for peer in peers:
            peer.close()
        async with httpx2.AsyncClient(trust_env=False) as http:
            assert (await http.get(url + "/health")).status_code == 200


@pytest.mark.usefixtures("hasty")
async def test_a_peer_that_drips_is_let_go_too(api: Api) -> None:
    async with serving(create_app(api.app_state)) as url:
        with connected(url) as peer:
            dripping = asyncio.create_task(drip(peer, HEAD[:-3] + b"99\r\n\r\n" + b" " * 999))
            assert await ended(peer)
            dripping.cancel()


async def drip(peer: socket.socket, data: bytes) -> None:
    for byte in data:
        await asyncio.get_running_loop().sock_sendall(peer, bytes([byte]))
        await asyncio.sleep(0.01)


def connected(url: str) -> socket.socket:
    host, port = url.removeprefix("http://").split(":")
    peer = socket.create_connection((host, int(port)))
    peer.setblocking(False)
    return peer


async def ended(peer: socket.socket) -> bool:
    """Has the server ended the connection, within some seconds?"""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(20):
        try:
            while await loop.sock_recv(peer, 1000):
                pass
        except ConnectionError:
            pass
    return True


async def test_half_open_connections_are_noticed_by_the_kernel(api: Api) -> None:
    async with serving(create_app(api.app_state)) as url:
        with connected(url) as peer:
            loop = asyncio.get_running_loop()
            await loop.sock_sendall(peer, b"GET /health HTTP/1.1\r\n\r\n")
            assert await loop.sock_recv(peer, 9)
            name = peer.getsockname()
            mine = [s for s in server_sockets() if s.getpeername() == name]
            assert [s.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) for s in mine] == [1]
            assert mine[0].getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 60_000


def server_sockets() -> list[Any]:
    """Those that are open; closed ones of earlier tests may not have been collected yet.

    ``isinstance`` would ask a weak proxy for its class, which raises when its object is gone.
    """
    found = [one for one in gc.get_objects() if issubclass(type(one), BoundedProtocol)]
    sockets = [one.transport.get_extra_info("socket") for one in found if one.transport is not None]
    return [one for one in sockets if one.fileno() >= 0]


@pytest.mark.spec("S000-135")
async def test_connections_beyond_the_open_files_are_refused_and_said(
    api: Api, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.server.most_connections", lambda: 10)
    async with serving(create_app(api.app_state)) as url:
        peers = [connected(url) for _ in range(8)]
        ends = [asyncio.create_task(ended(peer)) for peer in peers]
        await wait_until_async(lambda: sum(end.done() for end in ends) == 3, 20)
        assert caplog.messages.count("connection.refused") == 3
        for peer in peers:
            peer.close()
        for end in ends:
            end.cancel()
        await wait_until_async(partial(answers, url), 20)


def test_the_limit_of_connections_leaves_files_for_the_rest() -> None:
    assert most_connections() <= resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] - most_connections() >= KEPT_DESCRIPTORS


async def answers(url: str) -> bool:
    async with httpx2.AsyncClient(trust_env=False) as http:
        try:
            return (await http.get(url + "/health")).status_code == 200
        except httpx2.TransportError:
            return False


# --- values that bite -------------------------------------------------------------------------------

DEEP = b"[" * 200_000 + b"]" * 200_000
HANDLER = b'{"tasks":[{"handler":"m:f","arguments":{"x":%s}}]}'
BAD = {
    "nesting": HANDLER % DEEP,
    "a lone surrogate": b'{"tasks":[{"command":["\\ud800"]}]}',
    "NUL in a command": b'{"tasks":[{"command":["a\\u0000"]}]}',
    "NaN": HANDLER % b"NaN",
    "Infinity": HANDLER % b"-Infinity",
    "a huge number": b'{"tasks":[{"command":["true"],"priority":1%s}]}' % (b"0" * 5000),
    "no UTF-8": b'{"tasks":[{"command":["\xff"]}]}',
}


async def test_values_that_cannot_be_kept_are_refused_and_nothing_is_stored(api: Api) -> None:
    for what, body in BAD.items():
        answer = await api.call("POST", TASKS, content=body)
        with problem(answer, 422, "invalid_request") as document:
            assert document["field"], what
    async with api.client() as client:
        assert (await client.group("work")).tasks_total == 0


async def test_exactly_the_largest_is_taken(api: Api) -> None:
    full = {"tasks": [OK] * 10_000}
    assert (await api.call("POST", TASKS, json=full)).status_code == 201
    bulk = {"handler": "m:f", "arguments": {"x": ""}}
    room = 1_000_000 - len(json.dumps(bulk, separators=(",", ":")))
    nested: Any = "y" * (room - 2 * 50)
    for _ in range(50):
        nested = [nested]
    for value in ("x" * room, nested):
        bulk["arguments"] = {"x": value}
        answer = await api.call("POST", TASKS, json={"tasks": [bulk]})
        assert answer.status_code == 201, answer.text[:300]
    bulk["arguments"] = {"x": "x" * (room + 1)}
    with problem(await api.call("POST", TASKS, json={"tasks": [bulk]}), 413, "too_large"):
        pass


# --- many tasks, many groups ------------------------------------------------------------------------


async def test_a_claim_reads_an_index_however_many_tasks_are_ready(database: str) -> None:
    async with world(database) as w:
        group = await w.group("large")
        await w.rows(
            "WITH made AS (INSERT INTO task_groups"
            " (name, user_group_id, creator_id, worker_allocation_plan)"
            " SELECT 'g-' || n, user_group_id, creator_id, worker_allocation_plan"
            " FROM task_groups, generate_series(1, 1000) AS n RETURNING id)"
            " INSERT INTO group_live (group_id) SELECT id FROM made"
        )
        await w.submit(group, 100)
        host = await w.leased_host(group)
        await w.rows(
            "INSERT INTO open_task (group_id, id, priority)"
            " SELECT (SELECT id FROM task_groups WHERE uuid = %s), 1000000 + n, 0"
            " FROM generate_series(1, 200000) AS n",
            group,
        )
        await w.rows("ANALYZE open_task")
        assert len((await host.claim(10)).tasks) == 10
        plan = await explained(w, group)
        assert "open_task_ready" in plan
        assert "Seq Scan" not in plan
        assert "Sort" not in plan


async def explained(w: World, group: Any) -> str:
    rows = await w.rows(
        "EXPLAIN SELECT o.id, o.priority FROM open_task AS o"
        " WHERE o.group_id = (SELECT id FROM task_groups WHERE uuid = %s) AND o.state = 0"
        " ORDER BY o.priority DESC, o.id LIMIT 1000 FOR UPDATE OF o SKIP LOCKED",
        group,
    )
    plan = "\n".join(str(row["QUERY PLAN"]) for row in rows)
    return plan.replace("Seq Scan on task_groups", "")
