"""Attacks on the limits of the API, over real sockets: bodies without a token, one user who takes all."""

import asyncio
import json
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from uuid import UUID, uuid4

import pytest

from api.admission import Admission
from api.app import create_app
from api.app_state import AppState
from api.bodies import LOGIN_LIMIT
from api.bounded_protocol import BoundedProtocol
from api.server import serving
from api.streams import MAX_STREAMS, Streams
from mitosis.contracts.http import TaskGroupSpec
from mitosis.store.store import StoreOptions
from tests.support.campaigns import held, until_blocked, world
from tests.support.http_api import Api, in_process_api
from tests.support.waiting import wait_until_async

TASKS = "/api/v1/task-groups/work/tasks"
ONE_TASK = json.dumps({"tasks": [{"command": ["true"]}]}).encode()
LOGIN = "/api/v1/login"
PLACES: defaultdict[str, UUID] = defaultdict(uuid4)


@dataclass
class Scene:
    """A served API with two users, each with a task group ``work``, and raw connections to it."""

    state: AppState
    port: int
    tokens: dict[str, str]
    exits: AsyncExitStack

    async def begin(
        self, method: str, path: str, *, by: str | None, body: bytes = b"", says: int | None = None
    ) -> asyncio.StreamReader:
        """Send a request with that much of its body; return where its answer comes."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=2**20)
        self.exits.callback(writer.close)
        head = [f"{method} {path} HTTP/1.1", "Host: api", "Content-Type: application/json"]
        if by is not None:
            head.append(f"Authorization: Bearer {self.tokens.get(by, by)}")
        length = len(body) if says is None else says
        if length:
            head += [f"Content-Length: {length}", "Expect: 100-continue"]
        writer.write("\r\n".join([*head, "", ""]).encode() + body)
        return reader

    async def call(self, method: str, path: str, *, by: str | None, body: bytes = b"") -> int:
        return await status(await self.begin(method, path, by=by, body=body))


async def status(reader: asyncio.StreamReader) -> int:
    """The status of the answer; that of a request to continue is skipped."""
    async with asyncio.timeout(20):
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            if (found := int(head.split()[1])) != 100:
                return found


@asynccontextmanager
async def attacked(api: Api, **limits: int) -> AsyncIterator[Scene]:
    state = replace(api.app_state, admission=Admission(**limits))
    tokens = {name: await api.user(name) for name in ("ann", "ben")}
    for token in tokens.values():
        async with api.client(token) as client:
            await client.create_group(TaskGroupSpec(name="work"))
    served = serving(create_app(state), release=state.long_polls.release)
    async with served as url, AsyncExitStack() as exits:
        yield Scene(state, int(url.rsplit(":", 1)[1]), tokens, exits)


@pytest.fixture
async def api(database: str) -> AsyncIterator[Api]:
    async with in_process_api(database) as opened:
        yield opened


def routes_with_bodies() -> list[tuple[str, str]]:
    paths = create_app(None).openapi()["paths"]
    return [
        (method.upper(), path)
        for path, operations in paths.items()
        for method, operation in operations.items()
        if "requestBody" in operation and path != LOGIN
    ]


@pytest.mark.spec("S002-10")
async def test_no_route_reads_one_byte_of_a_body_without_a_good_token(api: Api) -> None:
    routes = [(m, p.format_map(PLACES)) for m, p in routes_with_bodies()]
    assert len(routes) > 30
    async with attacked(api) as it:
        for method, path in routes:
            for caller in (None, "x.y.z"):
                reader = await it.begin(method, path, by=caller, says=1000)
                async with asyncio.timeout(20):
                    head = await reader.readuntil(b"\r\n")
                assert head.startswith(b"HTTP/1.1 401"), f"{method} {path}: {head!r}"
        assert it.state.admission.bodies.used == 0


async def test_slow_bodies_of_one_user_leave_room_for_another(api: Api) -> None:
    async with attacked(api, max_body_bytes=1000) as it:
        bodies = it.state.admission.bodies
        for _ in range(5):  # each says 100 bytes and sends one
            await it.begin("POST", TASKS, by="ann", body=b"{", says=100)
        await wait_until_async(lambda: bodies.used == 500)
        assert await it.call("POST", TASKS, by="ann", body=ONE_TASK) == 503
        assert await it.call("POST", TASKS, by="ben", body=ONE_TASK) == 201
        assert await it.call("GET", "/api/v1/me", by="ann") == 200
    await wait_until_async(lambda: bodies.used == 0)


async def test_held_requests_of_one_user_leave_room_for_another(api: Api) -> None:
    async with attacked(api, max_requests=8) as it:
        shares = it.state.admission.shares
        for _ in range(4):
            held = "/api/v1/task-groups/work/results?wait_seconds=20"
            await it.begin("GET", held, by="ann")
        await wait_until_async(lambda: shares.used == 4)
        assert await it.call("GET", "/api/v1/me", by="ann") == 503
        assert await it.call("GET", "/api/v1/me", by="ben") == 200
    await wait_until_async(lambda: shares.used == 0)


async def test_streams_of_one_user_leave_room_for_another(api: Api) -> None:
    streams = Streams(api.app_state.long_polls, most=MAX_STREAMS // 10)
    crowded = replace(api, app_state=replace(api.app_state, streams=streams))
    async with attacked(crowded) as it:
        events = "/api/v1/task-groups/work/events"
        opened = [await it.begin("GET", events, by="ann") for _ in range(MAX_STREAMS // 20)]
        await wait_until_async(lambda: streams.shares.used == len(opened) == 20, 30)
        assert await it.call("GET", events, by="ann") == 503
        theirs = await it.begin("GET", events, by="ben")
        assert await status(theirs) == 200
        async with asyncio.timeout(20):
            assert await theirs.readuntil(b"event: group")
            assert await status(opened[-1]) == 200


async def test_slow_logins_leave_room_for_those_who_are_logged_in(api: Api) -> None:
    async with attacked(api, max_requests=8) as it:
        for _ in range(4):
            await it.begin("POST", LOGIN, by=None, body=b"{", says=100)
        await wait_until_async(lambda: it.state.admission.shares.used == 4)
        assert await it.call("POST", LOGIN, by=None, body=b"{}") == 503
        assert await it.call("GET", "/api/v1/me", by="ben") == 200


async def test_a_login_is_small(api: Api) -> None:
    async with attacked(api) as it:
        reader = await it.begin("POST", LOGIN, by=None, says=LOGIN_LIMIT + 1)
        assert await status(reader) == 413
        assert await it.call("POST", LOGIN, by=None, body=b" " * LOGIN_LIMIT) == 422


async def test_a_body_that_nothing_reads_is_cut_off_after_the_answer_has_arrived(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BoundedProtocol, "look_seconds", 0.02)
    monkeypatch.setattr(BoundedProtocol, "unread_seconds", 0.1)
    async with attacked(api) as it:
        for caller, length, expected in ((None, 10**9, 401), ("ann", 10**9, 413)):
            reader = await it.begin("POST", TASKS, by=caller, body=b" " * 10**6, says=length)
            assert await status(reader) == expected
            async with asyncio.timeout(20):
                await reader.read()  # what the answer says, until the connection ends


@pytest.mark.spec("S002-10")
async def test_calls_of_one_user_that_wait_in_the_database_leave_connections_to_others(
    api: Api, database: str
) -> None:
    most = StoreOptions(database_url=database).pool_size
    async with attacked(api) as it, held(database) as other:
        await other.held.execute(
            "SELECT FROM group_live AS v JOIN task_groups AS g ON g.id = v.group_id"
            " JOIN user_groups AS u ON u.id = g.user_group_id WHERE u.name = 'ann' FOR UPDATE OF v"
        )
        path = "/api/v1/task-groups/work/tasks"
        blocked = [
            asyncio.create_task(it.call("POST", path, by="ann", body=ONE_TASK))
            for _ in range(2 * most)
        ]
        async with world(database) as w:
            await until_blocked(w, most // 2)
        assert await it.call("GET", "/api/v1/task-groups", by="ben") == 200
        assert await it.call("POST", path, by="ben", body=ONE_TASK) == 201
        assert not any(call.done() for call in blocked), "ann still waits"
        await other.commit()
        assert 201 in await asyncio.gather(*blocked)
