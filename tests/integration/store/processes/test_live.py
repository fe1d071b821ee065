"""The API and control processes that run: each has one row, and what none may misread waits for all."""

from uuid import uuid4

import pytest
from psycopg.types.json import Jsonb

from mitosis.contracts.errors import UpgradeInProgress
from mitosis.contracts.request_fields import accepted_fields
from mitosis.contracts.temporal_names import OUTBOX_CHANNEL, WAKE_CHANNEL
from mitosis.store.pg.tables import BLOCKED
from mitosis.store.processes import live
from mitosis.store.processes.live import (
    CommonFields,
    live_processes,
    recording_process,
    require_task_state,
)
from mitosis.version import __version__
from tests.support.campaigns import World, world
from tests.support.waiting import wait_until_async

pytestmark = pytest.mark.new_sessions

OLDER_STATES = [0, 1, 4, 5]


async def add(w: World, kind: str, *, states: list[int], silent: float = 0.0) -> None:
    """The row of a process that runs elsewhere."""
    await w.rows(
        "INSERT INTO live_processes (id, kind, version, host_name, pid, knows, beat_at)"
        " VALUES (%s, %s, '0.0.9', 'elsewhere', 7, %s, now() - make_interval(secs => %s))",
        uuid4(),
        kind,
        Jsonb({"task_states": states}),
        silent,
    )


async def common_of(w: World) -> CommonFields:
    """What an API process lists right after its start."""
    common = CommonFields()
    async with recording_process(w.store, "api", common):
        return common


async def kinds(w: World) -> list[str]:
    return [one.kind for one in (await live_processes(w.store)).processes]


async def check(w: World, state: int) -> None:
    async with w.database.connection() as connection:
        await require_task_state(connection, state)


async def test_a_process_has_a_row_while_it_runs(database: str) -> None:
    async with world(database) as w:
        assert await kinds(w) == []
        async with recording_process(w.store, "api"), recording_process(w.store, "control"):
            api, control = (await live_processes(w.store)).processes
            assert (api.kind, control.kind) == ("api", "control")
            assert api.version == __version__
            assert api.pid == control.pid
            assert 0 <= api.silent_seconds < 20
            await w.rows("ALTER TABLE live_processes DROP CONSTRAINT live_processes_kind_check")
            await add(w, "kind of a later version", states=[7])
            assert await kinds(w) == ["api", "control"]
            await check(w, BLOCKED)
            await w.rows("DELETE FROM live_processes WHERE pid = 7")
        assert await w.value("SELECT count(*) FROM live_processes") == 0


async def test_the_row_of_a_killed_process_is_removed_by_another(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "BEAT_SECONDS", 0.05)
    async with world(database) as w, recording_process(w.store, "api"):
        await add(w, "control", states=OLDER_STATES, silent=15)
        assert await kinds(w) == ["api", "control"], "it may only be slow"
        await w.rows("UPDATE live_processes SET beat_at = now() - interval '31 s'")

        async def one_row() -> bool:
            return bool(await w.value("SELECT count(*) = 1 FROM live_processes"))

        await wait_until_async(one_row)
        assert await kinds(w) == ["api"], "one that was slow has its row again"


async def test_an_unknown_state_waits_until_the_last_older_process_is_gone(database: str) -> None:
    async with world(database) as w, recording_process(w.store, "api"):
        await check(w, BLOCKED)
        await add(w, "control", states=OLDER_STATES)
        await check(w, 1)
        with pytest.raises(UpgradeInProgress, match=r"version 0\.0\.9 on elsewhere") as refused:
            await check(w, BLOCKED)
        assert refused.value.http_status == 409
        assert refused.value.facts["kind"] == "control"
        await w.rows("UPDATE live_processes SET beat_at = now() - interval '31 s' WHERE pid = 7")
        await check(w, BLOCKED)


@pytest.mark.parametrize(("channel", "kind"), [(WAKE_CHANNEL, "api"), (OUTBOX_CHANNEL, "control")])
async def test_a_process_that_writes_no_row_is_seen_by_what_it_listens_to(
    database: str, channel: str, kind: str
) -> None:
    async with world(database) as w, w.database.listen(channel) as listener:
        assert await kinds(w) == [], "this version is known by its rows"
        await listener.execute("SET application_name = 'mitosis'")
        await listener.execute(f"LISTEN {channel}".encode())
        (older,) = (await live_processes(w.store)).processes
        assert (older.kind, older.version, older.pid) == (kind, None, None)
        with pytest.raises(UpgradeInProgress, match="an earlier version"):
            await check(w, BLOCKED)


async def test_an_api_lists_what_all_that_run_accept(database: str) -> None:
    async with world(database) as w:
        assert (await common_of(w)).listed == accepted_fields()
        await add(w, "control", states=OLDER_STATES)
        assert (await common_of(w)).listed == accepted_fields(), "no agent calls a control worker"
        fewer = {"Renewal": ["incarnation", "epoch", "later"]}
        await w.rows(
            "UPDATE live_processes SET kind = 'api',"
            " knows = jsonb_build_object('request_fields', %s::jsonb)",
            Jsonb(fewer),
        )
        listed = (await common_of(w)).listed
        assert listed["Renewal"] == ["incarnation", "epoch"]
        assert listed["Held"] == accepted_fields()["Held"]
        await w.rows("UPDATE live_processes SET beat_at = now() - interval '31 s'")
        assert (await common_of(w)).listed == accepted_fields()
