"""A lease on a host, with real worker processes: tasks in, results out, deaths, endings."""

import asyncio
import errno
import logging
import os
import signal
import sys
from pathlib import Path

import msgspec
import pytest
from temporalio.testing import ActivityEnvironment

from manager_agent import affinity
from manager_agent.affinity import plan_cpus
from mitosis.contracts.allocation import (
    CpuBinding,
    CpuBindingStrategy,
    WorkerAllocationPlan,
    worker_cpus,
)
from mitosis.contracts.control import HookVerdict, LeaseEnd
from mitosis.contracts.errors import InvalidRequest
from mitosis.contracts.task import TaskSubmission
from mitosis.contracts.wire import CancelOrder, LeaseStanding, Outcome
from mitosis.execution import session as session_module
from mitosis.execution import watchdog
from mitosis.execution.pool import Pool
from tests.support.agents import Commands, running_agent, until
from tests.support.fake_api import FakeApi, command

FINISH = CancelOrder(kill=False, grace_seconds=0, reason="complete")


def detail(api: FakeApi, task_id: int) -> dict[str, object]:
    return msgspec.json.decode(api.results[task_id].detail, type=dict[str, object])


def _pool(host: Commands) -> Pool:
    pool = host.session.workers.pool
    assert pool is not None
    return pool


async def running_tasks(host: Commands, count: int) -> None:
    await until(lambda: host.agent.host.session and host.session.state.running == count)


@pytest.mark.spec("S002-128")
async def test_one_command_through_zygote_and_worker(tmp_path: Path) -> None:
    async with FakeApi().serving() as api, running_agent(api, tmp_path) as host:
        (task_id,) = api.submit(command("/bin/true"))
        assert (await host.prepare()).verdict is HookVerdict.READY
        host.start_lease()
        await host.done(task_id)
        assert api.results[task_id].outcome == "succeeded"
        assert api.results[task_id].exit_code == 0
        api.end(FINISH)
        assert (await host.lease).end is LeaseEnd.ENDING


async def test_a_batch_of_commands_and_handlers_runs_once_each(tmp_path: Path) -> None:
    async with FakeApi().serving() as api, running_agent(api, tmp_path) as host:
        log = tmp_path / "log"
        commands = [command("/bin/sh", "-c", f"echo {n} >> {log}") for n in range(200)]
        handlers = [
            TaskSubmission(handler="math:factorial", arguments=[n % 10]) for n in range(200)
        ]
        ids = api.submit(*commands, *handlers)
        host.start_lease()
        await host.done(*ids, timeout=60)
        assert {report.outcome for report in api.results.values()} == {Outcome.SUCCEEDED}
        assert sorted(map(int, log.read_text().split())) == list(range(200))
        assert detail(api, ids[205])["result"] == 120
        assert set(api.statuses) == {"committed"}
        api.end(FINISH)
        await host.lease


@pytest.mark.spec(
    "S002-236",
    "S002-239",
    "S002-240",
    "S002-241",
    "S002-242",
    "S002-243",
    "S002-13",
    "S002-36",
    "S002-113",
)
@pytest.mark.parametrize("strategy", list(CpuBindingStrategy))
async def test_workers_are_pinned_and_read_back_their_cores(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, strategy: CpuBindingStrategy
) -> None:
    caplog.set_level(logging.INFO)
    cores = sorted(os.sched_getaffinity(0))
    count = min(2, len(cores))
    plan = WorkerAllocationPlan(worker_count=count, cpu_binding=CpuBinding(strategy=strategy))
    here = f"ls {tmp_path} | grep -c here"
    meet = f"touch {tmp_path}/here-$$; until [ $({here}) = {count} ]; do sleep 0.1; done"
    script = f"{meet}; grep Cpus_allowed_list /proc/self/status"
    async with FakeApi(plan=plan).serving() as api, running_agent(api, tmp_path) as host:
        ids = api.submit(*[command("/bin/sh", "-c", script)] * count)  # one on each worker
        host.start_lease()
        await host.done(*ids)
        told = {
            detail(api, i)["worker"]: (detail(api, i)["cpus"], detail(api, i)["stdout"])
            for i in ids
        }
        logged = {
            vars(record)["slot"]: vars(record)["cpus"]
            for record in caplog.records
            if record.message == "worker.ready"
        }
        for slot, wanted in enumerate(worker_cpus(plan, cores)):
            assert wanted is not None
            assert sorted(logged[slot]) == sorted(wanted)
            cpus, stdout = told[slot]
            assert cpus == sorted(wanted)
            assert _cores(str(stdout).split()[1]) == wanted  # what a child of the worker really has
        await _end(host)


@pytest.mark.spec("S000-135")
@pytest.mark.parametrize(
    "error", [InvalidRequest("cores went away"), OSError(errno.EMFILE, "Too many open files")]
)
async def test_workers_that_cannot_be_started_are_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    tries: list[WorkerAllocationPlan] = []

    def at_the_second_try(plan: WorkerAllocationPlan) -> list[frozenset[int] | None]:
        tries.append(plan)
        if len(tries) == 1:
            raise error
        return plan_cpus(plan)

    monkeypatch.setattr("manager_agent.agent.plan_cpus", at_the_second_try)
    async with FakeApi().serving() as api, running_agent(api, tmp_path) as host:
        (task_id,) = api.submit(command("/bin/true"))
        host.start_lease()
        await host.done(task_id)
        assert len(tries) == 2
        await _end(host)


@pytest.mark.spec(
    "S002-142", "S000-67", "S002-249", "S000-45", "S002-268", "S002-39", "S002-99", "S000-69"
)
async def test_a_killed_worker_is_respawned_and_its_task_reported(tmp_path: Path) -> None:
    async with FakeApi(retries=1).serving() as api, running_agent(api, tmp_path) as host:
        once = tmp_path / "once"
        script = f"if [ -e {once} ]; then exit 0; fi; touch {once}; kill -9 $PPID; sleep 60"
        (task_id,) = api.submit(command("/bin/sh", "-c", script))
        host.start_lease()
        await host.done(task_id)
        assert api.results[task_id].outcome == "succeeded"
        (failure,) = api.failures
        assert (failure.kind, failure.signal) == ("worker_lost", signal.SIGKILL)
        assert b"killed by SIGKILL" in bytes(failure.detail)
        await until(lambda: [w.available for w in host.session.state.workers] == [True, True])
        assert sorted(w.generation for w in host.session.state.workers) == [0, 1]
        await _end(host)


async def test_unstarted_tasks_of_a_killed_worker_cost_no_attempt(tmp_path: Path) -> None:
    plan = WorkerAllocationPlan(worker_count=1, task_prefetch_count=5)
    async with FakeApi(plan=plan).serving() as api, running_agent(api, tmp_path) as host:
        ids = api.submit(
            command("/bin/sh", "-c", "kill -9 $PPID; sleep 60"), *[command("/bin/true")] * 5
        )
        host.start_lease()
        await host.done(*ids)
        assert api.results[ids[0]].kind == "worker_lost"
        assert [api.results[i].attempt for i in ids] == [1] * 6
        assert {api.results[i].outcome for i in ids[1:]} == {Outcome.SUCCEEDED}
        await _end(host)


async def test_handlers_that_cannot_be_imported_fail_their_tasks(tmp_path: Path) -> None:
    plan = WorkerAllocationPlan(worker_count=1, handler_modules=("no_such_module",))
    async with FakeApi(plan=plan).serving() as api, running_agent(api, tmp_path) as host:
        good, bad = api.submit(
            command("/bin/true"), TaskSubmission(handler="no_such_module:f", arguments=[])
        )
        host.start_lease()
        await host.done(good, bad)
        assert api.results[good].outcome == "succeeded"
        assert api.results[bad].outcome == "failed"
        assert "no_such_module" in str(detail(api, bad))
        await _end(host)


@pytest.mark.spec("S000-27", "S000-29")
async def test_an_ending_that_kills_cancels_what_runs_and_returns_the_rest(tmp_path: Path) -> None:
    async with FakeApi().serving() as api, running_agent(api, tmp_path) as host:
        ids = api.submit(*[command("/bin/sleep", "60")] * 4)
        host.start_lease()
        await running_tasks(host, 2)
        await until(lambda: all(task.epoch for task in api.open.values()))
        await until(lambda: len(host.session.state.ready) == 2)
        api.end(CancelOrder(kill=True, grace_seconds=5, reason="cancelled by alice"))
        assert (await host.lease).end is LeaseEnd.ENDING
        assert {api.results[i].outcome for i in ids[:2]} == {Outcome.CANCELLED}
        assert "cancelled by alice" in str(detail(api, ids[0]))
        assert set(api.open) == set(ids[2:])
        assert all(task.epoch is None for task in api.open.values())


async def test_an_ending_that_lets_finish_waits_and_starts_nothing_more(tmp_path: Path) -> None:
    async with FakeApi().serving() as api, running_agent(api, tmp_path) as host:
        go = tmp_path / "go"
        wait = f"while [ ! -e {go} ]; do sleep 0.1; done"
        ids = api.submit(*[command("/bin/sh", "-c", wait)] * 2, *[command("/bin/true")] * 3)
        host.start_lease()
        await running_tasks(host, 2)
        await until(lambda: host.session.state.ready)
        waiting = [task.key.task_id for task in host.session.state.ready]
        api.end(FINISH)
        await until(lambda: sorted(api.returned) == waiting)
        assert not host.lease.done()
        go.touch()
        assert (await host.lease).end is LeaseEnd.ENDING
        assert {api.results[i].outcome for i in ids[:2]} == {Outcome.SUCCEEDED}
        assert set(api.open) == set(ids[2:])


async def test_a_lost_lease_lets_tasks_finish_and_says_hello_again(tmp_path: Path) -> None:
    async with FakeApi().serving() as api, running_agent(api, tmp_path) as host:
        go = tmp_path / "go"
        ids = api.submit(command("/bin/sh", "-c", f"while [ ! -e {go} ]; do sleep 0.1; done"))
        host.start_lease()
        await running_tasks(host, 1)
        api.lose_lease()
        await asyncio.wait_for(host.session.ends.wait(), 10)
        go.touch()
        assert (await host.lease).end is LeaseEnd.GONE
        # Nobody had claimed it again, so the late result counts (P2).
        await host.done(*ids)
        assert api.results[ids[0]].outcome == "succeeded"
        await until(lambda: len(api.hellos) == 2)
        assert api.hellos[0] == api.hellos[1]


async def test_a_task_that_must_be_alone_runs_beside_nothing(tmp_path: Path) -> None:
    log = tmp_path / "log"
    script = f"echo begin $0 >> {log}; sleep 0.05; echo end $0 >> {log}"
    async with FakeApi().serving() as api, running_agent(api, tmp_path) as host:
        first = api.submit(*[command("/bin/sh", "-c", script, "many")] * 4)
        alone = api.submit(command("/bin/sh", "-c", script, "alone"), alone=True)
        last = api.submit(*[command("/bin/sh", "-c", script, "many")] * 4)
        host.start_lease()
        await host.done(*first, *alone, *last)
        lines = log.read_text().splitlines()
        at = lines.index("begin alone")
        assert lines[at + 1] == "end alone"
        assert sum(1 if "begin" in line else -1 for line in lines[:at]) == 0
        await _end(host)


async def test_cancelling_the_activity_alone_stops_no_work(tmp_path: Path) -> None:
    async with FakeApi().serving() as api, running_agent(api, tmp_path) as host:
        go = tmp_path / "go"
        (task_id,) = api.submit(command("/bin/sh", "-c", f"until [ -e {go} ]; do sleep 0.1; done"))
        watching = ActivityEnvironment()
        lease = asyncio.create_task(watching.run(host.agent.host.run_lease, host.command()))
        await running_tasks(host, 1)
        watching.cancel()
        assert (await lease).end is LeaseEnd.DETACHED
        host.start_lease()
        go.touch()
        await host.done(task_id)
        assert api.results[task_id].attempt == 1
        api.end(FINISH)
        assert (await host.lease).end is LeaseEnd.ENDING


@pytest.mark.spec("S000-37", "S000-39")
async def test_a_cancellation_is_pushed_to_a_busy_host(tmp_path: Path) -> None:
    """It asks for nothing and does not renew: only the push of the workflow can tell it."""
    plan = WorkerAllocationPlan(worker_count=1, task_prefetch_count=0)
    async with (
        FakeApi(plan=plan).serving() as api,
        running_agent(api, tmp_path, renew_seconds=600.0) as host,
    ):
        (task_id,) = api.submit(command("/bin/sleep", "60"))
        watching = ActivityEnvironment()
        lease = asyncio.create_task(watching.run(host.agent.host.run_lease, host.command()))
        await running_tasks(host, 1)
        renewed = len(api.renewals)
        api.end(CancelOrder(kill=True, grace_seconds=5, reason="Task group cancelled"))
        watching.cancel()
        assert (await lease).end is LeaseEnd.ENDING
        assert len(api.renewals) > renewed
        assert api.results[task_id].outcome is Outcome.CANCELLED
        assert "Task group cancelled" in str(detail(api, task_id))


@pytest.mark.parametrize("forged", ["manager_id", "task_group_id", "epoch"])
async def test_a_forged_command_does_nothing(tmp_path: Path, forged: str) -> None:
    async with FakeApi().serving() as api, running_agent(api, tmp_path) as host:
        api.submit(command("/bin/true"))
        value = 999 if forged == "epoch" else FakeApi().manager_id
        assert (await host.prepare(**{forged: value})).verdict is HookVerdict.LEASE_LOST
        assert (await host.run_lease(**{forged: value})).end is LeaseEnd.GONE
        assert not api.changes
        assert not api.results
        assert host.agent.host.session is None


async def test_a_lease_that_is_gone_at_the_claim_is_given_up(tmp_path: Path) -> None:
    async with FakeApi().serving() as api, running_agent(api, tmp_path) as host:
        api.refuse["/managers/tasks/claim"] = (409, "lease_lost")
        assert (await host.run_lease()).end is LeaseEnd.GONE
        assert api.standing is LeaseStanding.ACTIVE


async def _end(host: Commands) -> None:
    host.api.end(FINISH)
    await host.session.over.wait()


async def test_a_worker_that_cannot_hear_the_ending_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watchdog, "CHECK_SECONDS", 0.05)
    monkeypatch.setattr(watchdog, "EXIT_SECONDS", 0.3)
    async with FakeApi().serving() as api, running_agent(api, tmp_path) as host:
        (task_id,) = api.submit(command("/bin/true"))
        host.start_lease()
        await host.done(task_id)
        pool = _pool(host)
        os.kill(next(iter(pool.pids.values())), signal.SIGSTOP)
        api.end(FINISH)
        assert (await host.lease).end is LeaseEnd.ENDING


def _cores(text: str) -> set[int]:
    """The cores of a list as the kernel writes it: ``0-2,5``."""
    cores: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        cores |= set(range(int(first), int(last or first) + 1))
    return cores


@pytest.mark.spec("S002-99")
@pytest.mark.parametrize("cancel", [False, True])
async def test_a_worker_that_hangs_under_a_task_is_killed_and_the_task_ended(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    cancel: bool,
) -> None:
    monkeypatch.setattr(session_module, "HANG_MARGIN_SECONDS", 0.2)
    plan = WorkerAllocationPlan(worker_count=1)
    async with FakeApi(plan=plan).serving() as api, running_agent(api, tmp_path) as host:
        limit = None if cancel else 0.5
        slow = command("/bin/sleep", "300", timeout_seconds=limit, kill_grace_seconds=0.1)
        (task_id,) = api.submit(slow)
        host.start_lease()
        await running_tasks(host, 1)
        pool = _pool(host)
        os.kill(pool.pids[0, 0], signal.SIGSTOP)
        if cancel:
            api.end(CancelOrder(kill=True, grace_seconds=0.1, reason="cancelled by alice"))
        await host.done(task_id)
        expected = ("cancelled", "cancelled") if cancel else ("failed", "timeout")
        assert (api.results[task_id].outcome, api.results[task_id].kind) == expected
        assert "its worker did not end it" in str(detail(api, task_id)["message"])
        if not cancel:
            (next_one,) = api.submit(command("/bin/true"))
            await host.done(next_one)
        await _end(host)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP])
async def test_only_the_task_that_ran_is_charged_for_the_end_of_its_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    """Short tasks have ended just before it, and their reports were not sent yet.

    Between two deaths are more than wait for a report: a task is to stand before one of them only.
    """
    monkeypatch.setattr(session_module, "HANG_MARGIN_SECONDS", 0.1)
    deadly = command(
        "/bin/sh",
        "-c",
        f"kill -{int(number)} $PPID; sleep 300",
        timeout_seconds=0.3,
        kill_grace_seconds=0.1,
    )
    plan = WorkerAllocationPlan(worker_count=1)
    async with FakeApi(plan=plan).serving() as api, running_agent(api, tmp_path) as host:
        short = api.submit(*[command("/bin/true")] * 20)
        for _ in range(1 if number is signal.SIGSTOP else 3):
            api.submit(deadly)
            short += api.submit(*[command("/bin/true")] * 30)
        host.start_lease()
        for task_id in short:
            await host.done(task_id)
        outcomes = [api.results[task_id] for task_id in short]
        assert {(one.outcome, one.kind) for one in outcomes} == {("succeeded", None)}
        await _end(host)


async def test_the_plan_names_interpreter_and_environment(tmp_path: Path) -> None:
    """Both are seen by the tasks: a wrapper around Python marks what it has started."""
    wrapper = tmp_path / "python"
    wrapper.write_text(f'#!/bin/sh\nSTARTED_BY=wrapper exec {sys.executable} "$@"\n')
    wrapper.chmod(0o755)
    plan = WorkerAllocationPlan(worker_python=str(wrapper), environment={"OF_PLAN": "yes"})
    async with FakeApi(plan=plan).serving() as api, running_agent(api, tmp_path / "host") as host:
        (task_id,) = api.submit(command("/bin/sh", "-c", 'echo "$STARTED_BY $OF_PLAN"'))
        host.start_lease()
        await host.done(task_id)
        assert detail(api, task_id)["stdout"] == "wrapper yes\n"


async def test_a_plan_with_enforced_cores_needs_a_host_that_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = WorkerAllocationPlan(cpu_binding=CpuBinding(use_cgroups=True))
    monkeypatch.setattr(affinity, "refusal", lambda: "the cpuset controller is not delegated")
    with pytest.raises(
        InvalidRequest, match="cores cannot be enforced on this host: the cpuset"
    ) as no:
        plan_cpus(plan)
    assert no.value.facts["field"] == "worker_allocation_plan.cpu_binding.use_cgroups"
    async with FakeApi(plan=plan).serving() as api, running_agent(api, tmp_path) as host:
        outcome = await host.prepare()
        assert outcome.verdict is HookVerdict.FAILED
        assert "leave use_cgroups out" in (outcome.message or "")
