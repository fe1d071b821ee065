"""Stored jobs over HTTP: versions that stay, the same definition twice, what is wrong, who sees what."""

import asyncio
import threading
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from api.auth import Subject
from mitosis import Job
from mitosis.contracts.errors import InvalidRequest, NotFound, PermissionDenied
from mitosis.jobs.definition import JobDefinition
from mitosis.jobs.loading import read_definition
from mitosis.jobs.reading import definition_of
from mitosis.store.users.accounts import add_member, create_user
from tests.support.http_api import Api, in_process_api


@pytest.fixture
async def api(database: str) -> AsyncIterator[Api]:
    async with in_process_api(database) as opened:
        yield opened


def definition(word: str, name: str = "etl") -> dict[str, Any]:
    return {"name": name, "steps": {"one": {"command": ["echo", word]}}}


@pytest.mark.spec("S001-24")
async def test_a_version_stays_and_the_same_definition_adds_none(api: Api) -> None:
    async with api.client() as client:
        first = await client.define_job(definition("a"))
        assert (first.version, first.created, first.group_name) == (1, True, "admin")
        again = await client.define_job(
            read_definition("{name: etl, steps: {one: {command: [echo, a]}}}")
        )
        assert (again.version, again.created) == (1, False), "also where it is written otherwise"
        job = Job("etl")
        job.command("one", ["echo", "a"])
        in_python = await client.define_job(job)
        assert (in_python.version, in_python.created) == (1, False)
        second = await client.define_job(definition("b"))
        third = await client.define_job(definition("a"))
        assert [second.version, third.version] == [2, 3], "the last one counts"
        assert third.digest == first.digest != second.digest
        assert (await client.job("etl")).version == 3
        assert (await client.job("admin/etl", version=2)).definition == definition("b")
        assert (await client.job(first.job_id, version=1)).digest == first.digest
        assert [one.version async for one in client.job_versions("etl")] == [3, 2, 1]
        with pytest.raises(NotFound, match="with a version 4"):
            await client.job("etl", version=4)


async def test_definitions_at_once_get_numbers_without_gaps(api: Api) -> None:
    async with api.client() as client:
        stored = await asyncio.gather(*(client.define_job(definition(str(n))) for n in range(6)))
        assert sorted(one.version for one in stored) == [1, 2, 3, 4, 5, 6]
        assert len({one.job_id for one in stored}) == 1
        same = await asyncio.gather(*(client.define_job(definition("x")) for _ in range(6)))
        assert sorted(one.created or False for one in same) == [False] * 5 + [True]
        assert {one.version for one in same} == {7}


async def test_what_is_wrong_is_refused_whole_and_named(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[threading.Thread] = []

    def checked(fields: object) -> JobDefinition:
        threads.append(threading.current_thread())
        return definition_of(fields)

    monkeypatch.setattr("api.routes.jobs.definition_of", checked)
    async with api.client() as client:
        bad = definition("a") | {"steps": {"one": {"command": ["x"], "after": ["none"]}}}
        with pytest.raises(InvalidRequest, match="none"):
            await client.define_job(bad)
        with pytest.raises(InvalidRequest, match="must be a Job, or the fields"):
            await client.define_job("etl.yaml")  # type: ignore[arg-type]
        assert threads != []
        assert threading.current_thread() not in threads, "others are served meanwhile"
        assert [one async for one in client.jobs()] == []


async def test_jobs_are_listed_and_shown_by_user_group(api: Api) -> None:
    store = api.app_state.store
    await create_user(store, "ann")
    bob = await create_user(store, "bob")
    subject = Subject("user", bob.user_id, bob.token_version)
    token = api.app_state.signer.issue(subject, timedelta(hours=1)).token
    await add_member(store, "ann", "bob", "read")
    async with api.client() as client:
        step = {"command": ["x"], "environment": {"KEY": "secret"}}
        hook = {"command": ["y"], "environment": {"KEY": "secret"}}
        body = {"name": "j", "steps": {"one": step}, "groups": {"main": {"setup": hook}}}
        await client.define_job(body, group_name="ann")
        await client.define_job(definition("a", "mine"))
        assert [(one.group_name, one.name) async for one in client.jobs()] == [
            ("admin", "mine"),
            ("ann", "j"),
        ]
    async with api.client(token) as reader:
        assert [one.name async for one in reader.jobs()] == ["j"]
        shown = (await reader.job("ann/j")).definition
        assert shown["steps"]["one"]["environment"] == {"KEY": None}, "readers see names only"
        assert shown["groups"]["main"]["setup"]["environment"] == {"KEY": None}
        with pytest.raises(PermissionDenied):
            await reader.define_job(definition("b", "j"), group_name="ann")
        with pytest.raises(PermissionDenied):
            await reader.delete_job("ann/j")
        with pytest.raises(NotFound):
            await reader.job("admin/mine")
    async with api.client() as client:
        await client.delete_job("ann/j")
        assert [one.name async for one in client.jobs()] == ["mine"]
