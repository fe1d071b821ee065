"""The workers of one lease as their host sees them: how many, whose children, what they reach, until when."""

import errno
import os
import sys
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from mitosis.concurrency import within
from mitosis.contracts.allocation import WorkerAllocationPlan
from mitosis.contracts.control import HookVerdict, LeaseEnd
from mitosis.contracts.hook import HookSpec
from mitosis.contracts.lifecycle import WorkerState
from mitosis.contracts.wire import CancelOrder
from mitosis.execution.pool import Pool, ZygoteCommand, ZygoteFailed
from mitosis.ipc.messages import Pause, Resume
from mitosis.worker.zygote_protocol import Setup
from tests.support.agents import Commands, running_agent, until
from tests.support.fake_api import TOKEN, FakeApi, command
from tests.support.processes import descendants, living, read

FINISH = CancelOrder(kill=False, grace_seconds=0, reason="complete")
THREE = WorkerAllocationPlan(worker_count=3)


def of_manager(api: FakeApi) -> set[int]:
    """What runs below us for this manager: not the servers of other tests."""

    def known(process: psutil.Process) -> tuple[int, str | None]:
        return process.pid, process.environ().get("MITOSIS_MANAGER_ID")

    found = read(descendants(os.getpid()), known)
    return {pid for pid, manager in found if manager == str(api.manager_id)}


def pids(host: Commands) -> dict[tuple[int, int], int]:
    pool = host.session.workers.pool
    assert pool is not None
    return dict(pool.pids)


async def all_available(host: Commands) -> None:
    await until(
        lambda: (
            host.agent.host.session
            and [worker.available for worker in host.session.state.workers] == [True] * 3
        )
    )


@pytest.mark.spec("S002-35", "S002-50", "S002-54", "S002-111", "S002-112")
async def test_as_many_workers_as_planned_live_below_the_agent_while_the_lease_does(
    tmp_path: Path,
) -> None:
    api = FakeApi(plan=THREE, setup=HookSpec(command=("/bin/true",)))
    async with api.serving(), running_agent(api, tmp_path) as host:
        assert (await host.prepare()).verdict is HookVerdict.READY
        assert of_manager(api) == set(), "no worker before setup has succeeded"
        host.start_lease()
        await all_available(host)
        assert sorted(pids(host)) == [(0, 0), (1, 0), (2, 0)]
        workers = [psutil.Process(pid) for pid in pids(host).values()]
        (zygote,) = {worker.parent() for worker in workers}
        assert zygote is not None
        assert zygote.ppid() == os.getpid()
        assert of_manager(api) == {zygote.pid, *(worker.pid for worker in workers)}
        api.end(FINISH)
        assert (await host.lease).end is LeaseEnd.ENDING
        session = host.session
        await session.over.wait()
        assert not living([zygote, *workers])
        assert {worker.phase for worker in session.state.workers} == {WorkerState.EXITED}


async def test_no_worker_is_started_where_setup_has_failed(tmp_path: Path) -> None:
    api = FakeApi(plan=THREE, setup=HookSpec(command=("/bin/false",)))
    async with api.serving(), running_agent(api, tmp_path) as host:
        assert (await host.prepare()).verdict is HookVerdict.FAILED
        assert (await host.run_lease()).end is LeaseEnd.GONE
        assert of_manager(api) == set()


async def test_a_zygote_without_a_descriptor_is_not_started_and_leaves_no_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(pid: int, flags: int = 0) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    setup = Setup(
        manager_id="manager-1",
        endpoint=f"ipc://{tmp_path}/workers",
        task_group_id="11111111-1111-1111-1111-111111111111",
        task_group_number=1,
        task_group_name="campaign",
        group_name="lab",
        scratch_folder=str(tmp_path),
        run_folder=str(tmp_path),
    )
    events: Any = None  # there is none
    pool = Pool(ZygoteCommand(sys.executable, setup, dict(os.environ)), [None], events)
    before = set(descendants(os.getpid()))
    with monkeypatch.context() as full:
        full.setattr(os, "pidfd_open", refuse)
        with pytest.raises(ZygoteFailed, match="Too many open files"):
            await pool.start()
    await within(pool.close(), 5)
    assert not living(list(set(descendants(os.getpid())) - before))


@pytest.mark.spec(
    "S002-46",
    "S002-52",
    "S002-59",
    "S002-97",
    "S002-114",
    "S002-115",
    "S002-117",
    "S002-127",
    "S002-157",
    "S002-223",
)
async def test_workers_speak_with_their_agent_only_which_knows_who_runs_what(
    tmp_path: Path,
) -> None:
    go = tmp_path / "go"
    script = f"env; until [ -e {go} ]; do sleep 0.1; done"
    async with FakeApi(plan=THREE).serving() as api, running_agent(api, tmp_path) as host:
        host.start_lease()
        await all_available(host)
        ids = api.submit(*[command("/bin/sh", "-c", script)] * 3)
        await until(lambda: host.session.state.running == 3)
        for pid in pids(host).values():
            assert psutil.Process(pid).net_connections(kind="inet") == []
        runs = {
            worker.slot: worker.running.task_id
            for worker in host.session.state.workers
            if worker.running
        }
        router = host.session._parts.router
        for slot, generation in pids(host):
            assert await router.control(slot, generation, Pause)
            assert await router.control(slot, generation, Resume)
        go.touch()
        await host.done(*ids)
        for slot, task_id in runs.items():
            told = msgspec.json.decode(api.results[task_id].detail, type=dict[str, object])
            assert told["worker"] == slot
            seen = dict(line.split("=", 1) for line in str(told["stdout"]).splitlines())
            assert seen["MITOSIS_MANAGER_ID"] == str(api.manager_id)
            assert seen["MITOSIS_WORKER_ENDPOINT"] == router.endpoint
            assert (seen["MITOSIS_WORKER_MODE"], seen["MITOSIS_WORKER_ID"]) == ("ipc", str(slot))
            assert TOKEN not in str(told["stdout"])
        assert sorted(runs) == [0, 1, 2]
        api.end(FINISH)
        await host.session.over.wait()
