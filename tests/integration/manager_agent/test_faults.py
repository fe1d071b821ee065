"""What can go wrong between an agent and the API, and between an agent and its earlier self."""

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Literal

import pytest

from manager_agent import shutdown
from manager_agent.agent import Agent
from manager_agent.lease_session import LeaseSession
from manager_agent.process import EXIT_DO_NOT_RESTART, run_agent
from mitosis.contracts.allocation import WorkerAllocationPlan
from mitosis.contracts.control import HookVerdict, LeaseEnd
from mitosis.contracts.errors import ManagerIdInUse
from mitosis.contracts.lifecycle import EnvironmentState
from mitosis.contracts.wire import MAX_REPORTS, CancelOrder, Outcome, TaskReport
from mitosis.execution.events import Hold, Instruction, Send
from mitosis.execution.journal import Journal
from mitosis.execution.run_folder import HostFolders
from mitosis.ipc.messages import EncodedReport
from tests.support.agents import config, running_agent, until
from tests.support.fake_api import FakeApi, command

CLAIM, REPORT, RENEW = "/managers/tasks/claim", "/managers/tasks/report", "/managers/heartbeat"
FINISH = CancelOrder(kill=False, grace_seconds=0, reason="complete")


@pytest.mark.spec("S000-141", "S000-84")
@pytest.mark.parametrize("path", [CLAIM, REPORT, RENEW])
async def test_a_lost_answer_neither_loses_nor_repeats_a_task(tmp_path: Path, path: str) -> None:
    log = tmp_path / "log"
    async with FakeApi().serving() as api, running_agent(api, tmp_path) as host:
        api.lose_answers[path] = 3
        ids = api.submit(*[command("/bin/sh", "-c", f"echo {n} >> {log}") for n in range(30)])
        host.start_lease()
        await host.done(*ids)
        assert sorted(map(int, log.read_text().split())) == list(range(30))
        assert [api.results[i].attempt for i in ids] == [1] * 30
        await until(lambda: api.lose_answers[path] == 0)
        if path == REPORT:
            assert api.statuses["duplicate"] >= 1
        api.end(FINISH)
        await host.lease


@pytest.mark.spec("S000-152", "S000-128", "S000-126")
async def test_tasks_go_on_while_the_api_is_away(tmp_path: Path) -> None:
    plan = WorkerAllocationPlan(worker_count=2, task_prefetch_count=20)
    log = tmp_path / "log"
    async with FakeApi(plan=plan).serving() as api, running_agent(api, tmp_path) as host:
        (first,) = api.submit(command("/bin/true"))
        host.start_lease()
        await host.done(first)
        ids = api.submit(*[command("/bin/sh", "-c", f"echo {n} >> {log}") for n in range(20)])
        await until(lambda: all(task.epoch for task in api.open.values()))
        api.down = True
        await until(lambda: log.exists() and len(log.read_text().split()) == 20)
        await until(lambda: not host.session.state.running)
        api.down = False
        await host.done(*ids)
        assert {api.results[i].outcome for i in ids} == {Outcome.SUCCEEDED}
        assert [api.results[i].attempt for i in ids] == [1] * 20
        api.end(FINISH)
        assert (await host.lease).end is LeaseEnd.ENDING


async def test_a_claim_that_strands_tasks_is_found_by_what_is_held(tmp_path: Path) -> None:
    async with FakeApi().serving() as api, running_agent(api, tmp_path) as host:
        (first,) = api.submit(command("/bin/true"))
        host.start_lease()
        await host.done(first)
        (stranded,) = api.submit(command("/bin/true"))
        await host.done(stranded)
        (lost,) = api.submit(command("/bin/true"))
        task = api.open[lost]
        task.epoch, task.claim_seq, task.attempt = api.epoch, 1, 1  # claimed, answered, forgotten
        api.lose_answers[RENEW] = 1  # a reconnect asks for the comparison at once
        await host.done(lost)
        assert api.results[lost].attempt == 2
        api.end(FINISH)
        await host.lease


async def test_started_attempts_are_told_once_they_run_for_a_second(tmp_path: Path) -> None:
    go = tmp_path / "go"
    async with FakeApi().serving() as api, running_agent(api, tmp_path) as host:
        long, short = api.submit(
            command("/bin/sh", "-c", f"until [ -e {go} ]; do sleep 0.1; done"),
            command("/bin/true"),
        )
        host.start_lease()
        await until(lambda: api.open[long].started)
        told = [a.task_id for renewal in api.renewals for a in renewal.started]
        assert told == [long]
        go.touch()
        await host.done(long, short)
        api.end(FINISH)
        await host.lease


@pytest.mark.spec("S000-52", "S000-89")
@pytest.mark.parametrize("fence", ["finish", "kill"])
async def test_a_silent_api_fences_the_host(
    tmp_path: Path, fence: Literal["finish", "kill"]
) -> None:
    go = tmp_path / "go"
    wait = f"until [ -e {go} ]; do sleep 0.1; done"
    plan = WorkerAllocationPlan(worker_count=1, task_prefetch_count=3)
    api = FakeApi(fence=fence, host_lost_after_seconds=1.0, plan=plan)
    async with api.serving(), running_agent(api, tmp_path) as host:
        running, waiting = api.submit(command("/bin/sh", "-c", wait), command("/bin/true"))
        host.start_lease()
        await until(lambda: host.agent.host.session and host.session.state.running == 1)
        await until(lambda: len(host.session.state.ready) == 1)
        api.down = True
        await until(lambda: host.session.state.fenced)
        if fence == "kill":
            assert (await host.lease).end is LeaseEnd.GONE
            api.down = False
            assert not api.results
            return
        go.touch()
        await until(lambda: host.session.state.running == 0)
        assert len(host.session.state.ready) == 1
        api.down = False
        await host.done(running, waiting)
        api.end(FINISH)
        await host.lease


async def test_a_fenced_host_that_hears_of_its_loss_starts_nothing_more(tmp_path: Path) -> None:
    go = tmp_path / "go"
    wait = f"until [ -e {go} ]; do sleep 0.1; done"
    plan = WorkerAllocationPlan(worker_count=1, task_prefetch_count=1)
    api = FakeApi(host_lost_after_seconds=1.0, plan=plan)
    async with api.serving(), running_agent(api, tmp_path) as host:
        api.submit(command("/bin/sh", "-c", wait), command("/bin/true"))
        host.start_lease()
        await until(lambda: host.agent.host.session and host.session.state.running == 1)
        await until(lambda: len(host.session.state.ready) == 1)
        api.down = True
        await until(lambda: host.session.state.fenced)
        go.touch()
        await until(lambda: host.session.state.running == 0)
        # The renewal is the first to be answered (no claim is held), and the lease is lost by then.
        api.refuse = dict.fromkeys((CLAIM, REPORT), (503, "database_unavailable"))
        api.lose_lease()
        done = _instructions(host.session)
        api.down = False
        await until(lambda: host.session.ending)
        assert not [it for it in done if isinstance(it, Send | Hold)]
        api.refuse.clear()
        assert (await host.lease).end is LeaseEnd.GONE


def _instructions(session: LeaseSession) -> list[Instruction]:
    """What the session is told to do from now on."""
    done: list[Instruction] = []
    do = session._do

    def noted(instruction: Instruction) -> None:
        done.append(instruction)
        do(instruction)

    session._do = noted  # type: ignore[method-assign]
    return done


async def test_a_host_that_was_lost_while_idle_says_hello_again_and_cleans_first(
    tmp_path: Path,
) -> None:
    async with FakeApi().serving() as api, running_agent(api, tmp_path) as host:
        await until(lambda: RENEW in api.calls)
        api.environment, api.owed = EnvironmentState.OWED, (api.task_group_id,)
        api.counted_lost = True
        await until(lambda: len(api.hellos) == 2 and api.environment is EnvironmentState.GONE)
        assert api.hellos[0] == api.hellos[1], "the same process"
        assert host.agent.host.session is None


async def test_the_journal_of_an_earlier_process_is_replayed_beside_work(tmp_path: Path) -> None:
    async with FakeApi().serving() as api:
        (task_id,) = api.submit(command("/bin/true"))
        api.open[task_id].attempt, api.open[task_id].epoch = 1, 5
        settings = config(api, tmp_path)
        settings.state_dir.mkdir()
        journal = Journal(settings.state_dir / "journal")
        report = TaskReport(task_id=task_id, attempt=1, outcome=Outcome.SUCCEEDED)
        journal.write([(5, EncodedReport.of(report))])
        journal.close()
        api.lose_answers[REPORT] = 1
        async with running_agent(api, tmp_path):
            await until(lambda: api.statuses == {"committed": 1, "duplicate": 1})
            assert api.results[task_id].attempt == 1
        again = Journal(settings.state_dir / "journal")
        assert again.take_entries() == []
        again.close()


async def test_a_session_that_ends_waits_for_the_reports_of_the_process_before(
    tmp_path: Path,
) -> None:
    """Its epoch holds their rows: released now, they would be run again or cancelled."""
    async with FakeApi().serving() as api:
        (task_id,) = api.submit(command("/bin/true"))
        api.open[task_id].attempt, api.open[task_id].epoch = 1, api.epoch
        api.open[task_id].claim_seq = 0
        settings = config(api, tmp_path)
        settings.state_dir.mkdir()
        journal = Journal(settings.state_dir / "journal")
        report = TaskReport(task_id=task_id, attempt=1, outcome=Outcome.SUCCEEDED)
        journal.write([(5, EncodedReport.of(report))])
        journal.close()
        api.refuse[REPORT] = (503, "unavailable")
        async with running_agent(api, tmp_path) as host:
            host.start_lease()
            await until(lambda: any(renewal.held is not None for renewal in api.renewals))
            assert api.open[task_id].epoch == api.epoch, "what the journal holds is not disowned"
            api.end(CancelOrder(kill=False, grace_seconds=1.0, reason="moved"))
            await until(lambda: host.session.ended_in is None and host.session.state.over)
            seen = len(api.renewals)
            await until(lambda: len(api.renewals) > seen + 1)
            assert not host.session.over.is_set()
            del api.refuse[REPORT]
            await until(host.session.over.is_set)
            assert api.results[task_id].attempt == 1


async def test_a_process_with_a_successor_takes_no_lease(tmp_path: Path) -> None:
    """Both poll one task queue until the earlier one has heard of the other at its next renewal."""
    async with FakeApi().serving() as api, running_agent(api, tmp_path) as host:
        api.submit(command("/bin/true"))
        api.incarnation += 1
        assert (await host.prepare()).verdict is HookVerdict.LEASE_LOST
        assert (await host.run_lease()).end is LeaseEnd.GONE
        assert not api.taken
        assert host.agent.host.session is None


async def test_a_journal_of_any_length_is_replayed(tmp_path: Path) -> None:
    """It is rewound when nothing is left in it, so a slow API lets it grow beyond what one call may hold."""
    count = MAX_REPORTS + 1
    async with FakeApi().serving() as api:
        settings = config(api, tmp_path)
        settings.state_dir.mkdir()
        journal = Journal(settings.state_dir / "journal")
        reports = [
            TaskReport(task_id=i, attempt=1, outcome=Outcome.SUCCEEDED) for i in range(1, count + 1)
        ]
        journal.write([(5, EncodedReport.of(report)) for report in reports])
        journal.close()
        async with running_agent(api, tmp_path):
            await until(lambda: api.statuses == {"unknown": count})


async def test_results_that_cannot_be_reported_outlive_the_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutdown, "REPORT_SECONDS", 0.1)
    plan = WorkerAllocationPlan(worker_count=2, task_prefetch_count=20)
    journal = tmp_path / "state" / "journal"
    async with FakeApi(plan=plan).serving() as api:
        async with running_agent(api, tmp_path) as host:
            (first,) = api.submit(command("/bin/true"))
            host.start_lease()
            await host.done(first)
            go = tmp_path / "go"
            wait = f"until [ -e {go} ]; do sleep 0.1; done"
            ids = api.submit(*[command("/bin/sh", "-c", wait)] * 5)
            await until(lambda: all(task.epoch for task in api.open.values()))
            await until(lambda: host.session.state.running == 2)
            api.down = True
            go.touch()
            await until(lambda: journal.read_bytes().count(b"MJ01") == 5)
            host.stop()
            host.stop()
        assert set(api.open) == set(ids)
        api.down = False
        async with running_agent(api, tmp_path):
            await until(lambda: api.results.keys() >= set(ids))
            assert [api.results[i].attempt for i in ids] == [1] * 5


async def test_an_agent_that_keeps_reports_says_no_goodbye(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A goodbye would requeue what has ended; the next process names it in its hello."""
    monkeypatch.setattr(shutdown, "REPORT_SECONDS", 0.1)
    async with FakeApi().serving() as api:
        api.refuse[REPORT] = (503, "unavailable")
        (task_id,) = api.submit(command("/bin/true"))
        async with running_agent(api, tmp_path, drain=timedelta(seconds=1)) as host:
            host.start_lease()
            await until(lambda: (tmp_path / "state" / "journal").read_bytes().startswith(b"MJ01"))
            host.stop()
        assert not api.said_goodbye
        del api.refuse[REPORT]
        async with running_agent(api, tmp_path):
            await until(lambda: task_id in api.results)
        assert api.results[task_id].attempt == 1
        assert api.said_goodbye


async def test_every_process_says_hello_with_a_higher_incarnation(tmp_path: Path) -> None:
    async with FakeApi().serving() as api:
        for _ in range(3):
            async with running_agent(api, tmp_path):
                pass
        assert api.hellos == [1, 2, 3]
        assert api.said_goodbye


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/managers/hello", 401, "unauthenticated"),
        ("/managers/hello", 409, "superseded"),
        ("/managers/hello", 409, "manager_id_in_use"),
        (RENEW, 401, "unauthenticated"),
        (RENEW, 409, "superseded"),
    ],
)
async def test_a_refused_agent_exits_for_good(
    tmp_path: Path, path: str, status: int, code: str
) -> None:
    async with FakeApi().serving() as api:
        api.refuse[path] = (status, code)
        assert await run_agent(config(api, tmp_path)) == EXIT_DO_NOT_RESTART


async def test_a_second_agent_of_one_manager_is_refused(tmp_path: Path) -> None:
    async with FakeApi().serving() as api, running_agent(api, tmp_path):
        other = config(api, tmp_path, state_dir=tmp_path / "other")
        assert await run_agent(other) == EXIT_DO_NOT_RESTART
        with pytest.raises(ManagerIdInUse, match="another agent of manager"):
            HostFolders.lock(str(api.manager_id), other.state_dir, tmp_path)
        assert api.hellos == [1]


async def test_shutdown_in_order_lets_running_tasks_finish_and_returns_the_rest(
    tmp_path: Path,
) -> None:
    go = tmp_path / "go"
    async with FakeApi().serving() as api:
        async with running_agent(api, tmp_path) as host:
            wait = f"until [ -e {go} ]; do sleep 0.1; done"
            ids = api.submit(*[command("/bin/sh", "-c", wait)] * 2, *[command("/bin/true")] * 4)
            host.start_lease()
            await until(lambda: host.agent.host.session and host.session.state.running == 2)
            host.stop()
            await host.session.ends.wait()
            go.touch()
        assert (await host.lease).end is LeaseEnd.STOPPING
        assert {api.results[i].outcome for i in ids[:2]} == {Outcome.SUCCEEDED}
        assert all(task.epoch is None for task in api.open.values())
        assert api.said_goodbye


async def test_a_second_stop_kills_without_charging_the_tasks(tmp_path: Path) -> None:
    async with FakeApi().serving() as api:
        async with running_agent(api, tmp_path) as host:
            (task_id,) = api.submit(command("/bin/sleep", "60"))
            host.start_lease()
            await until(lambda: host.agent.host.session and host.session.state.running == 1)
            host.stop()
            host.stop()
        assert not api.results
        assert api.open[task_id].epoch is None
        assert api.said_goodbye


async def test_an_agent_waits_for_an_api_that_is_not_there_yet(tmp_path: Path) -> None:
    api = FakeApi()
    async with api.serving():
        api.down = True
        settings = config(api, tmp_path)
        with HostFolders.lock(str(api.manager_id), settings.state_dir, tmp_path) as folders:
            agent = Agent(settings, folders)
            running = asyncio.create_task(agent.run())
            await until(lambda: api.calls["/managers/hello"] >= 2)
            api.down = False
            await until(lambda: bool(api.hellos))
            agent.stop()
            await running


@pytest.mark.spec("S000-91", "S000-92", "S000-94")
async def test_a_restarted_agent_goes_on_with_its_lease_before_temporal_says_so(
    tmp_path: Path,
) -> None:
    async with FakeApi().serving() as api:
        async with running_agent(api, tmp_path) as host:
            await host.prepare()
            (task_id,) = api.submit(command("/bin/true"))
            host.start_lease()
            await host.done(task_id)
        api.environment = EnvironmentState.READY
        (task_id,) = api.submit(command("/bin/true"))
        async with running_agent(api, tmp_path) as host:
            await host.done(task_id)
            host.start_lease()  # attaches
            api.end(FINISH)
            assert (await host.lease).end is LeaseEnd.ENDING
