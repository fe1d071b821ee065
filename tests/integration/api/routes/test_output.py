"""Live output at the API: who is asked, what is fenced, what is bounded, and that no task is touched."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import LiteralString
from uuid import UUID, uuid4

import httpx2
import msgspec
import pytest

from api.service import ApiOptions, running_api
from mitosis.client.client import Client
from mitosis.contracts.following import OutputEvent
from mitosis.contracts.http import RegisterManager
from mitosis.contracts.ids import task_uuid
from mitosis.contracts.task import TaskSubmission
from mitosis.contracts.task_output import exact_form, readable
from mitosis.contracts.wire import (
    ClaimTasks,
    Followed,
    LeaseStanding,
    Outcome,
    OutputChunk,
    ReportTasks,
    TaskReport,
    WriteOutput,
    WriteOutputAnswer,
)
from mitosis.store.managers.hello import say_goodbye
from mitosis.store.output.writing import ROWS_KEPT, wait_for_followers, write_output
from mitosis.store.store import Store, StoreOptions
from mitosis.store.users.accounts import create_user
from tests.support.http_api import NoTemporal
from tests.support.served_group import KEY, Served, served_group

pytestmark = pytest.mark.timeout(60)


class Running(Served):
    """A host that runs one task of the group ``work``."""

    task_id = 0

    async def start(self) -> None:
        task = TaskSubmission(command=["true"])
        await self.client.submit("work", [task, task])
        await self.lease()
        self.seq += 1
        claim = ClaimTasks(epoch=self.epoch, claim_seq=1, acked_seq=0, max_tasks=1)
        (claimed,) = (await self.manager.claim(claim)).tasks
        self.task_id = claimed.task_id

    @property
    def store(self) -> Store:
        return self.api.app_state.store

    def chunk(self, offset: int, data: bytes, *, attempt: int = 1, task: int = 0) -> OutputChunk:
        return OutputChunk(
            task_id=task or self.task_id, attempt=attempt, stream="stdout", offset=offset, data=data
        )

    async def write(self, *chunks: OutputChunk, epoch: int = 0, manager: UUID | None = None) -> int:
        request = WriteOutput(epoch=epoch or self.epoch, chunks=list(chunks))
        answer = await write_output(self.store, manager or self.manager_id, request)
        return answer.written

    async def uuid(self) -> UUID:
        async with self.api.app_state.store.database.connection() as connection:
            row = await (await connection.execute("SELECT id FROM task_groups")).fetchone()
        assert row is not None
        return task_uuid(row["id"], self.task_id)

    async def report(self, detail: bytes = b"{}") -> None:
        report = TaskReport(
            task_id=self.task_id, attempt=1, outcome=Outcome.SUCCEEDED, detail=msgspec.Raw(detail)
        )
        await self.manager.report_tasks(ReportTasks(epoch=self.epoch, reports=[report]))


@pytest.fixture
async def running(database: str) -> AsyncIterator[Running]:
    async with served_group(database, Running) as it:
        await it.start()
        yield it


async def test_an_agent_is_told_at_once_who_follows_and_who_has_left(running: Running) -> None:
    nothing = Followed(epoch=running.epoch, wait_seconds=30)
    asking = asyncio.create_task(wait_for_followers(running.store, running.manager_id, nothing))
    events = running.client.task_output(await running.uuid())
    first = await anext(events)
    assert (first.kind, first.attempt, first.manager_name) == ("attempt", 1, "host-1")
    async with asyncio.timeout(10):
        answer = await asking
        assert (answer.tasks, answer.everything) == ([running.task_id], False)
        known = Followed(epoch=running.epoch, tasks=answer.tasks, wait_seconds=30)
        leaving = asyncio.create_task(wait_for_followers(running.store, running.manager_id, known))
        await events.aclose()  # type: ignore[attr-defined]
        assert (await leaving).tasks == []
    assert await running.write(running.chunk(0, b"unheard")) == 0
    gone = Followed(epoch=running.epoch + 1, wait_seconds=30)
    assert (
        await wait_for_followers(running.store, running.manager_id, gone)
    ).standing is LeaseStanding.GONE


async def test_only_the_manager_that_runs_the_attempt_can_write_and_no_task_is_touched(
    running: Running,
) -> None:
    other = await running.client.register_manager(RegisterManager(name="host-2"))
    follower = running.client.task_output(await running.uuid())
    before = await running.client.task(await running.uuid())
    async with aclosing(follower) as events:  # type: ignore[type-var]
        await anext(events)
        good = running.chunk(0, b"a")
        assert await running.write(good, manager=other.manager_id) == 0
        assert await running.write(good, epoch=running.epoch + 1) == 0
        assert await running.write(running.chunk(0, b"a", attempt=2)) == 0
        assert await running.write(running.chunk(0, b"a", attempt=0)) == 0
        assert await running.write(running.chunk(0, b"a", task=running.task_id + 1)) == 0
        assert await running.write(good) == 1
        assert (await anext(events)).data == b"a"
        assert await running.client.task(await running.uuid()) == before
        await running.report()
        assert await running.write(running.chunk(1, b"b")) == 1  # it comes behind its result
        await say_goodbye(running.api.app_state.store, running.manager_id, running.epoch)
        assert await running.write(running.chunk(2, b"c")) == 0  # the lease is over


async def test_what_nobody_reads_in_time_is_bounded_and_shows_as_skipped(running: Running) -> None:
    uuid = await running.uuid()
    async with aclosing(running.client.task_output(uuid)) as events:  # type: ignore[type-var]
        await anext(events)
        chunks = [running.chunk(n, b"x") for n in range(ROWS_KEPT + 50)]
        assert await running.write(*chunks) == len(chunks)
        async with running.api.app_state.store.database.connection() as connection:
            cursor = await connection.execute("SELECT count(*) AS n FROM task_output")
            assert await cursor.fetchone() == {"n": ROWS_KEPT}
        told: list[OutputEvent] = []
        async with asyncio.timeout(10):
            while sum(len(e.data or b"") + (e.skipped or 0) for e in told) < len(chunks):
                told.append(await anext(events))
    assert told[0].offset == (told[0].skipped or 0)


DIGITS = b"01234567"
ODD = b"\377\377\0\377 first\nEND \377"


@pytest.mark.parametrize(
    ("written", "kept"),
    [(DIGITS, DIGITS[2:]), (ODD, ODD), (ODD, ODD[1:])],
    ids=["text", "no UTF-8", "no UTF-8, cut"],
)
async def test_the_rest_of_an_ended_attempt_comes_from_its_result(
    running: Running, written: bytes, kept: bytes
) -> None:
    uuid, text = await running.uuid(), readable(kept)
    exact = exact_form(kept, text)
    detail = {"stdout": text, "stdout_base64": exact, "stdout_bytes": len(written)}
    following = asyncio.create_task(_all(running.client.task_output(uuid)))
    watching = Followed(epoch=running.epoch, wait_seconds=30)
    async with asyncio.timeout(20):
        await wait_for_followers(running.store, running.manager_id, watching)
        await running.write(running.chunk(0, written[:3]))
        await running.report(msgspec.json.encode(detail))
        events = await following
    assert b"".join(event.data or b"" for event in events) == written
    assert [event.kind for event in events][-2:] == ["result", "end"]
    late = await _all(running.client.task_output(uuid))
    assert b"".join(event.data or b"" for event in late) == written


async def test_follower_and_agent_may_be_at_two_apis(running: Running, database: str) -> None:
    """Behind a load balancer they meet in PostgreSQL only."""
    options = ApiOptions(
        store=StoreOptions(database_url=database), signing_key=KEY, temporal_namespace="mitosis"
    )
    uuid, nobody = await running.uuid(), Followed(epoch=running.epoch, wait_seconds=30)
    asking = asyncio.create_task(wait_for_followers(running.store, running.manager_id, nobody))
    async with (
        running_api(options, NoTemporal()) as other,
        Client(other.url, running.token) as client,
        asyncio.timeout(20),
    ):
        following = asyncio.create_task(_all(client.task_output(uuid)))
        followed = await asking
        assert followed.tasks == [running.task_id]
        known = Followed(epoch=running.epoch, tasks=followed.tasks, wait_seconds=30)
        leaving = asyncio.create_task(wait_for_followers(running.store, running.manager_id, known))
        assert await running.write(running.chunk(0, b"012")) == 1
        await running.report(b'{"stdout": "0123", "stdout_bytes": 4}')
        events = await following
        assert b"".join(event.data or b"" for event in events) == b"0123"
        assert (await leaving).tasks == []


async def test_strangers_are_refused(running: Running) -> None:
    await create_user(running.api.app_state.store, "stranger", "secret words")
    async with Client(running.api.url) as other:
        token = (await other.login("stranger", "secret words")).token
    headers = {"Authorization": f"Bearer {token}"}
    group = await running.client.group("work")
    paths = (f"/tasks/{await running.uuid()}/output", f"/task-groups/{group.task_group_id}/output")
    async with httpx2.AsyncClient(base_url=running.api.url + "/api/v1") as http:
        for path in paths:
            assert (await http.get(path)).status_code == 401
            assert (await http.get(path, headers=headers)).status_code == 404
        for path in ("/managers/tasks/followed", "/managers/tasks/output"):
            body = {"epoch": running.epoch, "chunks": []}
            assert (await http.post(path, headers=headers, json=body)).status_code == 403


async def _all(events: AsyncIterator[OutputEvent]) -> list[OutputEvent]:
    return [event async for event in events]


class WholeReader:
    """A reader of whole output; what it has."""

    def __init__(self, running: Running) -> None:
        self.running, self.id, self.after, self.got = running, uuid4(), 0, b""

    async def read(self, *, loses_the_answer: bool = False) -> int:
        answer = await self.running.client.read_output("work", self.id, after=self.after)
        if not loses_the_answer:
            for piece in answer.pieces:
                assert piece.offset == len(self.got)
                self.got += piece.data
            self.after = answer.after
        return len(answer.pieces)


async def write_whole(running: Running, *chunks: OutputChunk) -> WriteOutputAnswer:
    request = WriteOutput(epoch=running.epoch, chunks=list(chunks), whole=True)
    return await write_output(running.store, running.manager_id, request)


async def test_a_reader_of_whole_output_gets_each_byte_once(running: Running) -> None:
    unread = await write_whole(running, running.chunk(0, b"early"))
    assert (unread.written, unread.unread, unread.full) == (0, [running.task_id], False)
    reader = WholeReader(running)
    await reader.read()
    data = bytes(range(256)) * 10
    pieces = [running.chunk(at, data[at : at + 64]) for at in range(0, len(data), 64)]
    for at in range(0, len(pieces), 4):
        answer = await write_whole(running, *pieces[at : at + 4])
        assert (answer.written, answer.unread) == (4, [])
    await reader.read(loses_the_answer=True)
    while await reader.read():
        pass
    assert reader.got == data
    known = Followed(epoch=running.epoch)  # agents need not be asked for the tails
    followed = await wait_for_followers(running.store, running.manager_id, known)
    assert (followed.tasks, followed.everything) == ([], False)
    other = await write_whole(running, running.chunk(0, b"x", task=running.task_id + 1))
    assert other.unread == [running.task_id + 1]


async def test_a_reader_that_is_behind_loses_nothing(running: Running) -> None:
    """The rows are bounded: nothing is kept beyond, and neither a follower nor time deletes unread ones."""
    reader = WholeReader(running)
    await reader.read()
    for number in range(0, ROWS_KEPT, 16):
        chunks = [running.chunk(at, b"x") for at in range(number, number + 16)]
        assert (await write_whole(running, *chunks)).written == 16
    more = running.chunk(ROWS_KEPT, b"y")
    behind = await write_whole(running, more)
    assert (behind.full, behind.written) == (True, 0)
    async with running.store.database.connection() as connection:
        await connection.execute("UPDATE task_output SET written_at = now() - interval '1 hour'")
    async with aclosing(running.client.task_output(await running.uuid())) as events:  # type: ignore[type-var]
        await anext(events)
        for number in range(40):
            await running.write(running.chunk(number, b"live"))
    while await reader.read():
        pass
    assert reader.got[:ROWS_KEPT] == b"x" * ROWS_KEPT
    assert (await write_whole(running, more)).written == 1


async def test_pieces_of_two_writers_come_in_the_order_of_their_commits(running: Running) -> None:
    """A reader that has read up to a row has missed none before it."""
    reader = WholeReader(running)
    await reader.read()
    store = running.store
    async with store.database.transaction() as slow:
        await slow.execute("SELECT 1 FROM output_followers WHERE read_to IS NOT NULL FOR UPDATE")
        first = asyncio.create_task(write_whole(running, running.chunk(0, b"a")))
        await lock_waiters(store, 1)
        assert await _count(store, "SELECT count(*) AS n FROM task_output") == 0
    assert (await first).written == 1
    assert await reader.read() == 1


async def lock_waiters(store: Store, count: int) -> None:
    waiting = "SELECT count(*) AS n FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    async with asyncio.timeout(10):
        while await _count(store, waiting) < count:  # noqa: ASYNC110 - another process waits
            await asyncio.sleep(0.01)


async def _count(store: Store, statement: LiteralString) -> int:
    async with store.database.connection() as connection:
        row = await (await connection.execute(statement)).fetchone()
    assert row is not None
    return int(row["n"])
