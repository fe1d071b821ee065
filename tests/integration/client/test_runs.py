"""Runs in a program without async, against the real API and PostgreSQL."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from mitosis import Conflict, Job, NotFound, SyncClient, SyncJobRun
from mitosis.client.program import search_path
from mitosis.contracts.errors import InvalidRequest
from mitosis.contracts.lifecycle import RunState
from mitosis.contracts.wire import Outcome
from mitosis.jobs.building import step
from tests.support.cli_stack import CliStack, cli_stack
from tests.support.servers import LoopThread


@step(count=2, arguments=["{{ params.word }}"])
def first(word: str) -> int:
    return len(word)


JOB = Job("etl", steps=[first], parameters={"word": {}})
JOB.command("second", ["true"], after=first)
WORD = {"word": "x"}


@pytest.fixture
def stack(server_loop: LoopThread, database: str, tmp_path: Path) -> Iterator[CliStack]:
    with cli_stack(server_loop, database, tmp_path / "data") as running:
        yield running


def test_a_program_starts_follows_and_reruns_a_job_in_python(stack: CliStack) -> None:
    with SyncClient(stack.url, stack.token) as client:
        run = client.start_job(JOB, WORD, name="one", labels=["trial"], idempotency_key="k")
        assert client.start_job(
            JOB, WORD, name="one", labels=["trial"], idempotency_key="k"
        ).run_id == (run.run_id), "the same call again starts no other run"
        plan = run.definition().definition["groups"]["main"]["plan"]
        assert plan["python_path"] == list(search_path())
        changes = run.changes(timedelta())
        assert next(changes).state == "running"
        with pytest.raises(Conflict, match="first has not ended"):
            run.result(first)
        stack.run_tasks([Outcome.SUCCEEDED, Outcome.FAILED])
        seen = [view.revision for view in changes]
        assert seen == sorted(set(seen)), "no change comes twice"
        assert run.state == "failed"
        assert [(one.index, one.state) for one in run.tasks(first)] == [
            (0, "succeeded"),
            (1, "failed"),
        ]
        assert run.result(first) == [None, None]
        with pytest.raises(Conflict, match="second has no result: it is skipped"):
            run.result("second")
        again = run.rerun(name="two")
        assert isinstance(again, SyncJobRun)
        assert again.info.rerun_of == run.run_id
        failed = client.runs(label="trial", state=RunState.FAILED)
        assert [one.name for one in failed] == ["one"]
        again.cancel(reason="enough", grace=timedelta(seconds=1))
        assert again.wait(timedelta(seconds=60)).state == "cancelled"
        assert client.run(again.run_id).info.reason == "enough"
        again.delete()
        with pytest.raises(NotFound):
            client.run(again.run_id)


def test_what_is_wrong_with_a_start_is_listed(stack: CliStack) -> None:
    with SyncClient(stack.url, stack.token) as client:
        with pytest.raises(InvalidRequest, match="word"):
            client.start_job(JOB)
        with pytest.raises(InvalidRequest, match="steps"):
            client.start_job({"name": "etl"})
        with pytest.raises(NotFound, match="etl"):
            client.start_job("etl", WORD)
        client.define_job(JOB)
        with pytest.raises(NotFound, match="version 2"):
            client.start_job("etl", WORD, version=2)
        assert client.start_job("etl", WORD, version=1).wait(timedelta()).version == 1
