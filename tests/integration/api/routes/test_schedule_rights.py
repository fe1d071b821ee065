"""Who may do what with a schedule, whose rights its runs have, and which version of the job."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, LiteralString
from uuid import UUID

import pytest

from api.auth import Subject
from mitosis.contracts.accounts import Role
from mitosis.contracts.errors import Unavailable
from mitosis.store.runs.views import read_run
from mitosis.store.schedules.rights import check_rights
from mitosis.store.users.accounts import add_member, create_user
from tests.support.http_api import Api, in_process_api
from tests.support.schedules import start_of

ETL = "/schedules/team/etl"
ROLES: dict[str, Role] = {"owner": "write", "reader": "read", "writer": "write", "chief": "admin"}
"""Members of the user group ``team``. ``root`` administers the stack, ``stranger`` is no member."""
DAY = "2026-11-28T00:00:00Z"


def job(word: str) -> dict[str, Any]:
    steps = {"a": {"command": ["echo", word, "{{ params.key }}"]}}
    return {"name": "etl", "parameters": {"key": {}}, "steps": steps}


@dataclass
class Team:
    """A user group with a job and a schedule of ``owner``, and the tokens of its users."""

    api: Api
    tokens: dict[str, str] = field(default_factory=dict)
    nights: int = 0

    async def call(self, who: str, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        answer = await self.api.call(method, path, token=self.tokens[who], json=body)
        return answer.status_code, answer.json() if answer.content else None

    async def did(self, who: str, method: str, path: str, body: Any = None) -> Any:
        status, answer = await self.call(who, method, path, body)
        assert status < 300, answer
        return answer

    async def store_version(self, who: str, word: str) -> int:
        body = {"definition": job(word), "group_name": "team"}
        version: int = (await self.did(who, "POST", "/jobs", body))["version"]
        return version

    async def next_run(self) -> tuple[int | None, str] | str:
        """Start the run of another time: its version and its user, or why the schedule has none."""
        self.nights += 1
        shown = await self.did("root", "GET", ETL)
        night = datetime(2026, 11, 28, tzinfo=UTC) - timedelta(days=self.nights)
        run_id = await start_of(self.api.app_state.store, shown["schedule_id"], night)
        if run_id is not None:
            run = await read_run(self.api.app_state.store, run_id)
            return run.version, run.created_by
        refusal: str = (await self.did("reader", "GET", ETL))["refusal"]
        return refusal


@asynccontextmanager
async def team_of(database: str, **fields: Any) -> AsyncIterator[Team]:
    async with in_process_api(database) as api:
        team, store = Team(api), api.app_state.store
        for name in ("team", *ROLES, "stranger", "root"):
            user = await create_user(store, name, is_admin=name == "root")
            subject = Subject("user", user.user_id, 1)
            team.tokens[name] = api.app_state.signer.issue(subject, timedelta(hours=1)).token
        for name, role in ROLES.items():
            await add_member(store, "team", name, role)
        await team.store_version("owner", "first")
        body = {"job": "team/etl", "cron": "@daily", "parameters": {"key": "secret"}, **fields}
        await team.did("owner", "POST", "/schedules", body)
        yield team


VERBS: dict[str, tuple[str, str, Any, dict[str, int]]] = {
    "show": ("GET", "", None, {"reader": 200, "writer": 200}),
    "pause": ("POST", "/pause", {"note": "stop"}, {"reader": 403, "writer": 200}),
    "drop": ("POST", "/pause", {"drop": True}, {"reader": 403, "writer": 403}),
    "resume": ("POST", "/resume", None, {"reader": 403, "writer": 403}),
    "change": ("PATCH", "", {"note": "x"}, {"reader": 403, "writer": 403}),
    "change, dry run": ("PATCH", "", {"dry_run": True}, {"reader": 403, "writer": 403}),
    "trigger": ("POST", "/trigger", None, {"reader": 403, "writer": 403}),
    "backfill": ("POST", "/backfill", {"first": DAY, "last": DAY}, {"reader": 403, "writer": 403}),
    "delete": ("DELETE", "", None, {"reader": 403, "writer": 403}),
}
"""How each verb is called, and the status for those who are neither the owner nor an admin."""
WRITES = frozenset({"pause", "resume", "change", "delete"})


async def test_each_verb_is_for_those_who_may_start_what_it_starts(database: str) -> None:
    wrong = []
    async with team_of(database) as team:
        for verb, (method, path, body, statuses) in VERBS.items():
            for who in ("stranger", "reader", "writer", "owner", "chief", "root"):
                before = await team.did("root", "GET", ETL)
                status, answer = await team.call(who, method, ETL + path, body)
                expected = {"stranger": 404, **statuses}.get(who)
                if status != expected if expected else status >= 300:
                    wrong.append(f"{verb} by {who}: {status} {answer}")
                if status >= 300:
                    assert await team.did("root", "GET", ETL) == before, f"{verb} by {who}"
                elif verb == "delete":
                    made = {"job": "team/etl", "cron": "@daily", "parameters": {"key": "x"}}
                    await team.did("owner", "POST", "/schedules", made)
                elif verb == "change":
                    assert answer["owner"] == who, "who changes it answers for it"
                    await team.did("root", "DELETE", ETL)
                    made = {"job": "team/etl", "cron": "@daily", "parameters": {"key": "x"}}
                    await team.did("owner", "POST", "/schedules", made)
    assert wrong == []


async def test_a_schedule_keeps_its_version_until_its_owner_chooses_another(database: str) -> None:
    async with team_of(database) as team:
        assert await team.next_run() == (1, "owner")
        assert await team.store_version("writer", "second") == 2
        assert await team.next_run() == (1, "owner"), "a version of another user changes nothing"
        shown = await team.did("owner", "GET", ETL)
        assert (shown["version"], shown["latest_version"]) == (1, 2)
        again = {"job": "team/etl", "name": "again", "cron": "@daily", "parameters": {"key": "x"}}
        planned = await team.did(
            "owner", "POST", "/schedules", {**again, "version": 1, "dry_run": True}
        )
        assert (planned["version"], planned["latest_version"]) == (1, 2)
        await team.did("owner", "PATCH", ETL, {"version": 2})
        assert await team.next_run() == (2, "owner")
        for wrong, names in (
            ({"accepted_version": 1}, "accepted_version"),
            ({"version": "latest", "accepted_version": 3}, "accepted_version"),
            ({"version": 0}, "version"),
        ):
            status, answer = await team.call("owner", "PATCH", ETL, wrong)
            assert (status, names in answer["field"]) == (422, True), answer
        status, _ = await team.call("owner", "PATCH", ETL, {"version": 3})
        assert status == 404


async def test_the_latest_version_runs_only_if_the_owner_answers_for_it(database: str) -> None:
    async with team_of(database, version="latest") as team:
        assert await team.next_run() == (1, "owner")
        for who in ("writer", "chief"):  # who is admin in this user group need not be in others
            version = await team.store_version(who, f"by {who}")
            refusal = await team.next_run()
            assert f"version {version} of the job was stored by {who}" in str(refusal)
            assert f"mitosis job schedule update team/etl --accept {version}" in str(refusal)
            assert "secret" not in str(refusal)
            await team.did("owner", "PATCH", ETL, {"note": "holidays"})
            assert await team.next_run() == refusal, "another change accepts no version"
            status, _ = await team.call(who, "POST", ETL + "/trigger")
            assert status == (403 if who == "writer" else 202)
            assert (await team.did("owner", "PATCH", ETL, {"accepted_version": version}))["refusal"]
            assert await team.next_run() == (version, "owner")
            assert (await team.did("owner", "GET", ETL))["refusal"] is None
        for who in ("owner", "root"):
            version = await team.store_version(who, f"by {who}")
            assert await team.next_run() == (version, "owner")


@pytest.mark.spec("S001-47")
async def test_the_right_to_start_runs_is_checked_at_each_time(database: str) -> None:
    async with team_of(database) as team:
        store = team.api.app_state.store

        async def execute(statement: LiteralString) -> None:
            async with store.database.connection() as connection:
                await connection.execute(statement)

        lost: dict[str, LiteralString] = {
            "read only": "UPDATE user_group_members SET role = 'read' WHERE role = 'write'",
            "no member": "DELETE FROM user_group_members USING users AS u"
            " WHERE u.id = user_id AND u.username = 'owner'",
            "locked": "UPDATE users SET state = 'locked' WHERE username = 'owner'",
        }
        for how, statement in lost.items():
            await execute(statement)
            refusal = await team.next_run()
            assert "owner, the owner of the schedule, may no longer start runs" in str(refusal), how
            await execute("UPDATE users SET state = 'active'")
            await add_member(store, "team", "owner", "write")
            assert await team.next_run() == (1, "owner"), "the schedule was not lost"
        await execute(lost["no member"])
        store.users.clear()
        status, _ = await team.call("owner", "PATCH", ETL, {"note": "mine"})
        assert status == 404
        taken = await team.did("chief", "PATCH", ETL, {"note": "taken over"})
        assert (taken["owner"], taken["version"], taken["parameters"]) == (
            "chief",
            1,
            {"key": "secret"},
        )
        assert await team.next_run() == (1, "chief")


async def test_who_takes_a_schedule_over_knows_its_version_and_its_revision(database: str) -> None:
    async with team_of(database, version="latest") as team:
        seen = await team.did("chief", "GET", ETL)
        await team.did("owner", "PATCH", ETL, {"parameters": {"key": "other"}})
        status, answer = await team.call("chief", "PATCH", ETL, {"revision": seen["revision"]})
        assert (status, answer["code"]) == (409, "conflict")
        assert (await team.did("owner", "GET", ETL))["owner"] == "owner"
        await team.store_version("writer", "second")
        taken = await team.did("chief", "PATCH", ETL, {"revision": seen["revision"] + 1})
        assert (taken["owner"], taken["accepted_version"]) == ("chief", 2)
        assert await team.next_run() == (2, "chief")
        await team.store_version("owner", "third")
        assert "was stored by owner" in str(await team.next_run()), "the rights are those of chief"
        store = team.api.app_state.store
        async with store.database.connection() as connection:
            row = await (await connection.execute("SELECT id FROM schedules")).fetchone()
        assert row is not None
        with pytest.raises(Unavailable, match="at the same time"):  # read before it was taken over
            await check_rights(store, row["id"], UUID(int=0), 1, is_pinned=True)
