"""Setup and teardown of a group on a host: hooks as real processes, checkpoints, refusals."""

import asyncio
import logging
import resource
from datetime import timedelta
from functools import partial
from pathlib import Path

import psutil
import pytest

from manager_agent.affinity import plan_cpus
from mitosis.contracts.allocation import CpuBinding, CpuBindingStrategy, WorkerAllocationPlan
from mitosis.contracts.control import HookVerdict, LeaseEnd
from mitosis.contracts.errors import InvalidRequest
from mitosis.contracts.hook import HookSpec
from mitosis.contracts.lifecycle import EnvironmentState
from mitosis.contracts.wire import CancelOrder, LeaseNotice, LeaseStanding, RenewalAnswer
from tests.support.agents import running_agent, until
from tests.support.fake_api import FakeApi, command
from tests.support.waiting import wait_until


def shell(script: str, **more: object) -> HookSpec:
    return HookSpec.model_validate({"command": ("/bin/sh", "-c", script), **more})


def told(log: Path) -> str:
    """Shell words that write down what a hook is told about where it runs."""
    names = ("TASK_GROUP_UUID", "TASK_GROUP_NAME", "GROUP_NAME", "WORKER_COUNT", "MANAGER_ID")
    return "echo " + " ".join(f"$MITOSIS_{name}" for name in names) + f" >> {log}"


def context(api: FakeApi) -> list[str]:
    return [str(api.task_group_id), "campaign", "lab", "2", str(api.manager_id)]


@pytest.mark.spec("S002-135", "S002-83", "S002-84", "S002-85", "S002-86")
async def test_setup_runs_once_with_its_context(tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with (
        FakeApi(setup=shell(told(log))).serving() as api,
        running_agent(api, tmp_path) as host,
    ):
        assert (await host.prepare()).verdict is HookVerdict.READY
        assert (await host.prepare()).message == "prepared before"
        assert log.read_text().split() == context(api)
        assert [change.event for change in api.changes] == ["preparing", "prepared"]
        assert api.changes[0].epoch == api.epoch
        assert api.changes[0].fingerprint


@pytest.mark.spec("S002-137", "S002-144")
@pytest.mark.parametrize(
    ("setup", "says"),
    [
        (shell("echo no compiler >&2; exit 3"), "exit code 3: no compiler"),
        (shell("kill -SEGV $$"), "killed by SIGSEGV"),
        (shell("sleep 60", timeout=timedelta(seconds=0.2)), "longer than its timeout of 0.2 s"),
        (HookSpec(command=("/no/such/program",)), "cannot start /no/such/program"),
        (shell("true", working_directory="/no/such/folder"), "cannot start /bin/sh"),
    ],
)
async def test_a_failing_setup_is_final_on_this_host(
    tmp_path: Path, setup: HookSpec, says: str
) -> None:
    async with FakeApi(setup=setup).serving() as api, running_agent(api, tmp_path) as host:
        outcome = await host.prepare()
        assert outcome.verdict is HookVerdict.FAILED
        assert says in outcome.message
        assert [change.event for change in api.changes] == ["preparing", "setup_failed", "cleaned"]
        assert api.changes[1].hook is not None
        assert api.changes[1].hook.state == "failed"


def daemon(pid: Path, *, deaf: bool = False) -> str:
    """Shell words that start a daemon in a session of its own and wait until it has written its pid."""
    body = f"{'trap true TERM; ' if deaf else ''}echo $$ > {pid}.new; mv {pid}.new {pid}"
    rest = "while :; do sleep 0.1; done" if deaf else "exec sleep 60"
    return f"setsid sh -c '{body}; {rest}' & until test -e {pid}; do sleep 0.01; done; "


def alive(pid: Path) -> bool:
    return Path(f"/proc/{pid.read_text().strip()}/stat").exists() and not _is_zombie(
        int(pid.read_text())
    )


async def test_a_daemon_of_setup_lives_until_the_teardown_hook_has_ended(tmp_path: Path) -> None:
    pid, late, saw = tmp_path / "pid", tmp_path / "late", tmp_path / "saw"
    setup = shell(daemon(pid) + "exit 0")
    teardown = shell(f"kill -0 $(cat {pid}) && echo alive > {saw}; " + daemon(late))
    async with FakeApi(setup=setup, teardown=teardown).serving() as api:
        async with running_agent(api, tmp_path) as host:
            assert (await host.prepare()).verdict is HookVerdict.READY
            assert alive(pid)
        async with running_agent(api, tmp_path) as host:  # a restart spares it
            assert alive(pid)
            await until(lambda: host.agent.host.session is not None)
            api.end(CancelOrder(kill=False, grace_seconds=0, reason="complete"))
            await host.session.ends.wait()
            assert (await host.clean()).verdict is HookVerdict.CLEANED
    assert saw.read_text() == "alive\n"
    assert not alive(pid)
    assert not alive(late)


async def test_a_daemon_of_a_failed_setup_ends_also_when_it_is_deaf(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mitosis.execution.leftovers.GRACE_SECONDS", 0.2)
    pid = tmp_path / "pid"
    setup = shell(daemon(pid, deaf=True) + "exit 1")
    async with FakeApi(setup=setup).serving() as api, running_agent(api, tmp_path) as host:
        assert (await host.prepare()).verdict is HookVerdict.FAILED
        assert not alive(pid)


async def test_gigabytes_of_output_keep_their_end_only(tmp_path: Path) -> None:
    setup = shell("head -c 300000000 /dev/zero | tr '\\0' x; echo; echo the end; exit 1")
    async with FakeApi(setup=setup).serving() as api, running_agent(api, tmp_path) as host:
        await host.prepare()
        hook = api.changes[1].hook
        assert hook is not None
        assert hook.stdout_tail is not None
        assert hook.stdout_tail.endswith("the end\n")
        assert len(hook.stdout_tail) < 20_000


async def test_a_timeout_kills_the_whole_process_group(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    script = f"trap '' TERM; sleep 60 & echo $! > {pids}; wait; sleep 60"
    setup = shell(script, timeout=timedelta(seconds=0.3))
    async with FakeApi(setup=setup).serving() as api, running_agent(api, tmp_path) as host:
        assert (await host.prepare()).verdict is HookVerdict.FAILED
        child = int(pids.read_text())
        wait_until(lambda: not Path(f"/proc/{child}/cmdline").exists() or _is_zombie(child))


@pytest.mark.spec("S000-93", "S000-94", "S000-143")
async def test_a_restarted_agent_does_not_run_setup_again(tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with FakeApi(setup=shell(f"echo once >> {log}")).serving() as api:
        async with running_agent(api, tmp_path) as host:
            await host.prepare()
        async with running_agent(api, tmp_path) as host:
            assert (await host.prepare()).message == "prepared before"
        assert log.read_text() == "once\n"


@pytest.mark.spec("S000-95")
async def test_a_lost_environment_is_prepared_again(tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with FakeApi(setup=shell(f"echo again >> {log}")).serving() as api:
        async with running_agent(api, tmp_path) as host:
            await host.prepare()
        for checkpoint in (tmp_path / "state" / "environments").iterdir():
            text = checkpoint.read_text().replace('"boot_id":"', '"boot_id":"another')
            checkpoint.write_text(text)
        async with running_agent(api, tmp_path) as host:
            assert (await host.prepare()).verdict is HookVerdict.READY
        assert log.read_text() == "again\nagain\n"


@pytest.mark.parametrize("end", ["exit 3", "kill -9 $$", "sleep 60"])
async def test_the_teardown_of_a_setup_that_failed_half_way_runs_at_once(
    tmp_path: Path, end: str
) -> None:
    staged = tmp_path / "staged"
    setup = shell(f"mkdir {staged}; {end}", timeout=timedelta(seconds=0.3))
    api = FakeApi(setup=setup, teardown=shell(f"rmdir {staged}"))
    async with api.serving(), running_agent(api, tmp_path) as host:
        assert (await host.prepare()).verdict is HookVerdict.FAILED
        assert not staged.exists()
        assert api.environment is EnvironmentState.GONE
        recorded = [(c.event, c.hook.state if c.hook else None) for c in api.changes]
        assert recorded[1:] == [
            ("setup_failed", "failed"),
            ("tear_down", "running"),
            ("cleaned", "succeeded"),
        ]
        begun, ended = (change.hook for change in api.changes[2:])
        assert begun is not None
        assert ended is not None
        assert begun.started_at == ended.started_at, "one run"


async def test_the_teardown_of_a_failed_setup_is_owed_when_the_agent_is_killed(
    tmp_path: Path,
) -> None:
    staged, begun = tmp_path / "staged", tmp_path / "begun"
    teardown = shell(f"if mkdir {begun}; then sleep 60; else rmdir {staged}; fi")
    async with FakeApi(setup=shell(f"mkdir {staged}; exit 3"), teardown=teardown).serving() as api:
        async with running_agent(api, tmp_path) as host:
            preparing = asyncio.create_task(host.prepare())
            await until(begun.exists)
            preparing.cancel()
        assert staged.exists()
        assert api.environment is EnvironmentState.TEARING_DOWN
        api.owed, api.environment = (api.task_group_id,), EnvironmentState.OWED  # as a hello does
        async with running_agent(api, tmp_path):
            await until(lambda: api.environment is EnvironmentState.GONE)
            assert not staged.exists()
        hooks = [one.hook for one in api.changes if one.event == "tear_down"]
        assert [hook.state for hook in hooks if hook is not None] == ["running"] * 2


async def test_setup_runs_again_in_another_instance_of_the_file_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The state folder is a volume; the container around it was replaced."""
    log = tmp_path / "log"
    async with FakeApi(setup=shell(f"echo run >> {log}")).serving() as api:
        for instance in ("first", "first", "second"):
            monkeypatch.setattr("manager_agent.agent.instance_mark", partial(str, instance))
            async with running_agent(api, tmp_path) as host:
                assert (await host.prepare()).verdict is HookVerdict.READY
        assert log.read_text() == "run\nrun\n"
        hooks = [change.hook for change in api.changes if change.hook is not None]
        assert [hook.state for hook in hooks] == ["running", "succeeded"] * 2, "both are recorded"
        starts = [hook.started_at for hook in hooks]
        assert starts[::2] == starts[1::2], "each as one run"


async def test_a_setup_after_a_teardown_asks_again_what_is_prepared(tmp_path: Path) -> None:
    """An environment that was ready before the wait is gone: PostgreSQL must know that a setup begins."""
    go, torn = tmp_path / "go", tmp_path / "torn"
    teardown = shell(f"touch {torn}; until [ -e {go} ]; do sleep 0.05; done")
    async with (
        FakeApi(setup=shell("true"), teardown=teardown).serving() as api,
        running_agent(api, tmp_path) as host,
    ):
        await host.prepare()
        before = await host.agent._api.grant(api.epoch)
        cleaning = asyncio.create_task(host.clean())
        await until(torn.exists)
        preparing = asyncio.create_task(host.agent.host._environments.prepare(before))
        go.touch()
        assert (await preparing).verdict is HookVerdict.READY
        await cleaning
    assert [change.event for change in api.changes[2:]] == [
        "tear_down",
        "cleaned",
        "preparing",
        "prepared",
    ]


async def test_a_setup_that_fails_when_it_is_repeated_is_recorded_and_final(tmp_path: Path) -> None:
    """PostgreSQL says ready, the checkpoint is lost, and setup does not work any more."""
    log = tmp_path / "log"
    api = FakeApi(setup=shell(f"echo run >> {log}; exit 4"))
    api.environment = EnvironmentState.READY
    async with api.serving(), running_agent(api, tmp_path) as host:
        assert (await host.run_lease()).end is LeaseEnd.GONE
        for _ in range(3):  # what the workflow of the host does next
            outcome = await host.prepare()
            assert (outcome.verdict, outcome.message) == (HookVerdict.FAILED, "exit code 4")
        assert log.read_text() == "run\n", "once under one lease"
        recorded = [(c.event, c.hook.exit_code if c.hook else None) for c in api.changes]
        assert recorded == [("prepared", None), ("setup_failed", 4), ("cleaned", None)]
        assert api.changes[0].hook is not None
        assert api.changes[0].hook.state == "running"


@pytest.mark.spec("S002-246", "S002-247", "S002-241", "S000-134", "S000-135")
@pytest.mark.parametrize(
    ("plan", "says"),
    [
        (
            WorkerAllocationPlan(
                worker_count=10_000,
                cpu_binding=CpuBinding(strategy=CpuBindingStrategy.EXCLUSIVE),
            ),
            "open files",
        ),
        (
            WorkerAllocationPlan(
                worker_count=99, cpu_binding=CpuBinding(strategy=CpuBindingStrategy.EXCLUSIVE)
            ),
            "99 exclusive workers need 99 cores",
        ),
        (
            WorkerAllocationPlan(cpu_binding=CpuBinding(cores=(4095,))),
            "this host has no core 4095",
        ),
    ],
)
async def test_a_plan_that_does_not_fit_fails_with_the_reason(
    tmp_path: Path, plan: WorkerAllocationPlan, says: str
) -> None:
    async with FakeApi(plan=plan).serving() as api, running_agent(api, tmp_path) as host:
        outcome = await host.prepare()
        assert outcome.verdict is HookVerdict.FAILED
        assert says in outcome.message
        hook = api.changes[1].hook
        assert [change.event for change in api.changes] == ["preparing", "setup_failed", "cleaned"]
        assert not any(change.hook for change in api.changes[2:]), "no setup has started"
        assert hook is not None
        assert says in str(hook.message)


@pytest.mark.spec("S000-134", "S000-135", "S000-163")
def test_more_workers_than_files_allow_are_refused() -> None:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert soft > 0
    with pytest.raises(InvalidRequest, match="at most 308 workers"):
        plan_cpus(WorkerAllocationPlan(worker_count=309), files=1024)
    assert len(plan_cpus(WorkerAllocationPlan(worker_count=308), files=1024)) == 308


@pytest.mark.spec("S002-106", "S002-83", "S002-84", "S002-85", "S002-86")
async def test_teardown_runs_and_the_environment_is_gone(tmp_path: Path) -> None:
    scratch, log = tmp_path / "staged", tmp_path / "log"
    setup, teardown = shell(f"mkdir {scratch}"), shell(f"rmdir {scratch}; {told(log)}")
    api = FakeApi(setup=setup, teardown=teardown)
    async with api.serving(), running_agent(api, tmp_path) as host:
        await host.prepare()
        assert scratch.is_dir()
        assert (await host.clean()).verdict is HookVerdict.CLEANED
        assert not scratch.exists()
        assert api.environment is EnvironmentState.GONE
        assert (await host.clean()).verdict is HookVerdict.CLEANED
        assert [c.event for c in api.changes[2:]] == ["tear_down", "cleaned"]
        assert log.read_text().split() == context(api), "once, with the context that setup had"


@pytest.mark.spec("S002-25", "S002-26")
async def test_hooks_have_what_commands_of_tasks_have(tmp_path: Path) -> None:
    """argv without a shell, environment, working directory, timeout: as in a task's specification."""
    log, folder = tmp_path / "log", tmp_path / "folder"
    folder.mkdir()
    script = f'echo "$0 $WORD $PWD" >> {log}'
    more = {"environment": {"WORD": "word"}, "working_directory": str(folder), "timeout": "1m"}
    setup, teardown = (
        HookSpec.model_validate({"command": ("/bin/sh", "-c", script, name), **more})
        for name in ("$(setup)", "$(teardown)")
    )
    api = FakeApi(setup=setup, teardown=teardown)
    async with api.serving(), running_agent(api, tmp_path) as host:
        assert (await host.prepare()).verdict is HookVerdict.READY
        assert (await host.clean()).verdict is HookVerdict.CLEANED
    assert log.read_text().splitlines() == [
        f"$(setup) word {folder}",
        f"$(teardown) word {folder}",
    ]


@pytest.mark.spec("S002-124", "S002-145")
async def test_a_failing_teardown_is_degraded_and_over(tmp_path: Path) -> None:
    api = FakeApi(teardown=shell("exit 1"))
    async with api.serving(), running_agent(api, tmp_path) as host:
        await host.prepare()
        assert (await host.clean()).verdict is HookVerdict.DEGRADED
        assert api.degraded
        assert api.environment is EnvironmentState.GONE


async def test_teardown_is_refused_while_tasks_run_and_waits_for_an_ending_one(
    tmp_path: Path,
) -> None:
    go, torn = tmp_path / "go", tmp_path / "torn"
    api = FakeApi(teardown=shell(f"touch {torn}"))
    async with api.serving(), running_agent(api, tmp_path) as host:
        await host.prepare()
        (task_id,) = api.submit(command("/bin/sh", "-c", f"until [ -e {go} ]; do sleep 0.1; done"))
        host.start_lease()
        await until(lambda: host.agent.host.session and host.session.state.running == 1)
        refused = await host.clean()
        assert refused.verdict is HookVerdict.LEASE_LOST
        assert "has not ended" in refused.message
        assert not torn.exists()
        api.end(CancelOrder(kill=False, grace_seconds=0, reason="complete"))
        await host.session.ends.wait()
        cleaning = asyncio.create_task(host.clean())
        await asyncio.wait([cleaning], timeout=0.3)
        assert not torn.exists()
        go.touch()
        assert (await cleaning).verdict is HookVerdict.CLEANED
        assert torn.exists()
        assert api.results[task_id].outcome == "succeeded"


@pytest.mark.parametrize("setup", [None, shell("true")], ids=["no hook", "hook"])
async def test_a_lease_that_an_answer_names_is_prepared_before_it_works(
    tmp_path: Path, setup: HookSpec | None
) -> None:
    """A call that takes a lease may arrive after its command has been given up: nobody prepares it then."""
    async with FakeApi(setup=setup).serving() as api, running_agent(api, tmp_path) as host:
        (task_id,) = api.submit(command("true"))
        notice = LeaseNotice(
            epoch=api.epoch, task_group_id=api.task_group_id, standing=LeaseStanding.ACTIVE
        )
        host.agent.host.follow(RenewalAnswer(lease=notice))
        await until(lambda: task_id in api.results)
        assert [change.event for change in api.changes] == ["preparing", "prepared"]


async def test_no_session_and_no_setup_begins_while_a_teardown_runs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A stale order of one kind must not meet a command of the other (P9)."""
    caplog.set_level(logging.INFO, logger="manager_agent")
    go, torn = tmp_path / "go", tmp_path / "torn"
    until_told = f"until [ -e {go} ]; do sleep 0.1; done"
    api = FakeApi(teardown=shell(f"touch {torn}; {until_told}"))
    async with api.serving(), running_agent(api, tmp_path) as host:
        await host.prepare()
        environments = host.agent.host._environments
        host.agent.host.follow(RenewalAnswer(teardowns=[api.task_group_id]))
        await until(torn.exists)
        host.agent.host.follow(RenewalAnswer(teardowns=[api.task_group_id]))
        assert (await host.run_lease()).end is LeaseEnd.GONE
        preparing = asyncio.create_task(host.prepare())
        await asyncio.wait([preparing], timeout=0.2)
        assert not environments.preparing(api.task_group_id)
        assert not preparing.done()
        joined = asyncio.create_task(host.clean())
        go.touch()
        assert (await joined).verdict is HookVerdict.CLEANED
        assert (await preparing).verdict is HookVerdict.READY
    events = [change.event for change in api.changes]
    assert events == ["preparing", "prepared", "tear_down", "cleaned", "preparing", "prepared"]
    assert caplog.messages.count("teardown.ended") == 1, "two orders and a command join one run"


async def test_a_lease_that_ends_during_setup_kills_the_hook_and_starts_no_worker(
    tmp_path: Path,
) -> None:
    begun, torn = tmp_path / "begun", tmp_path / "torn"
    api = FakeApi(setup=shell(f"echo $$ > {begun}; sleep 900"), teardown=shell(f"touch {torn}"))
    async with api.serving(), running_agent(api, tmp_path) as host:
        preparing = asyncio.create_task(host.prepare())
        await until(lambda: begun.exists() and begun.read_text().strip())
        api.end(CancelOrder(kill=False, grace_seconds=5, reason="cancelled"))
        preparing.cancel()
        assert (await host.run_lease()).end is LeaseEnd.ENDING
        assert host.agent.host.session is None
        await until(lambda: not psutil.pid_exists(int(begun.read_text())))
        assert not torn.exists()
        assert (await host.clean()).verdict is HookVerdict.CLEANED
        assert torn.exists()
    assert [change.event for change in api.changes] == ["preparing", "tear_down", "cleaned"]


async def test_owed_teardowns_come_first_after_hello(tmp_path: Path) -> None:
    torn = tmp_path / "torn"
    api = FakeApi(teardown=shell(f"touch {torn}"))
    api.owed, api.environment = (api.task_group_id,), EnvironmentState.OWED
    async with api.serving(), running_agent(api, tmp_path):
        await until(lambda: api.environment is EnvironmentState.GONE)
        assert torn.exists()


def _is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


@pytest.mark.spec("S000-95")
@pytest.mark.parametrize("works", [True, False])
async def test_a_lease_without_its_environment_prepares_it_before_any_task(
    tmp_path: Path,
    works: bool,
) -> None:
    """PostgreSQL says ready, but this host has no checkpoint: its state folder was lost."""
    ready = tmp_path / "ready"
    api = FakeApi(setup=shell(f"touch {ready}" if works else "exit 1"))
    api.environment = EnvironmentState.READY
    async with api.serving(), running_agent(api, tmp_path) as host:
        (task_id,) = api.submit(command("/bin/ls", str(ready)))
        if not works:
            assert (await host.run_lease()).end is LeaseEnd.GONE
            assert not api.results
            return
        host.start_lease()
        await host.done(task_id)
        assert api.results[task_id].outcome == "succeeded"
