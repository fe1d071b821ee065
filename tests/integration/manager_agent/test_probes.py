"""The probe of a group: one verdict under each lease, before any task."""

import asyncio
from pathlib import Path

from mitosis.contracts.control import HookVerdict, LeaseEnd
from mitosis.contracts.hook import HookSpec
from tests.support.agents import running_agent, until
from tests.support.fake_api import FakeApi, command


def shell(script: str) -> HookSpec:
    return HookSpec(command=("/bin/sh", "-c", script))


async def test_a_probe_decides_once_under_each_lease_whether_a_checkpoint_is_believed(
    tmp_path: Path,
) -> None:
    log, there = tmp_path / "log", tmp_path / "there"
    setup = shell(f"echo run >> {log}; touch {there}")
    api = FakeApi(setup=setup, probe=shell(f"echo probe >> {log}; test -e {there}"))
    async with api.serving(), running_agent(api, tmp_path) as host:
        for expected in (["run"], ["run", "probe"], ["run", "probe", "probe", "run"]):
            for _ in range(2):
                assert (await host.prepare()).verdict is HookVerdict.READY
                assert log.read_text().split() == expected
            if len(expected) == 2:
                there.unlink()
            api.epoch += 1  # the host comes back to the group
        hooks = [change.hook.state for change in api.changes if change.hook is not None]
        assert hooks == ["running", "succeeded"] * 2


async def test_a_restarted_agent_probes_once_before_it_works(tmp_path: Path) -> None:
    """The held lease, a command to prepare and a command to work ask at the same time."""
    log, go = tmp_path / "log", tmp_path / "go"
    wait = f"until [ -e {go} ]; do sleep 0.05; done"
    api = FakeApi(
        setup=shell(f"echo run >> {log}"),
        probe=shell(f"echo probe >> {log}; {wait}; echo agreed >> {log}"),
    )
    async with api.serving():
        async with running_agent(api, tmp_path) as host:
            await host.prepare()
            host.start_lease()
            await host.done(*api.submit(command("true")))
        assert log.read_text().split() == ["run"], "a setup that has just succeeded is believed"
        async with running_agent(api, tmp_path) as host:
            await until(lambda: "probe" in log.read_text())
            task = api.submit(command("/bin/sh", "-c", f"echo task >> {log}"))
            preparing = asyncio.create_task(host.prepare())
            host.start_lease()
            await until(lambda: host.agent.host._environments.preparing(api.task_group_id))
            go.touch()
            await host.done(*task)
            assert (await preparing).message == "prepared before"
        assert log.read_text().split() == ["run", "probe", "agreed", "task"]


async def test_a_lease_goes_on_after_a_restart_only_if_the_probe_agrees(tmp_path: Path) -> None:
    log, there = tmp_path / "log", tmp_path / "there"
    setup = shell(f"echo run >> {log}; touch {there}")
    probe = shell(f"echo probe >> {log}; test -e {there}")
    async with FakeApi(setup=setup, probe=probe).serving() as api:
        async with running_agent(api, tmp_path) as host:
            await host.prepare()
        async with running_agent(api, tmp_path) as host:
            await until(lambda: host.agent.host.session is not None)
        there.unlink()
        async with running_agent(api, tmp_path) as host:
            (task_id,) = api.submit(command("/bin/ls", str(there)))
            host.start_lease()
            await until(lambda: task_id in api.results)
            assert api.results[task_id].outcome == "succeeded"
    assert log.read_text().split() == ["run", "probe", "probe", "run"]


async def test_a_teardown_ends_the_probe_and_no_setup_follows(tmp_path: Path) -> None:
    log, begun = tmp_path / "log", tmp_path / "begun"
    api = FakeApi(
        setup=shell(f"echo run >> {log}"),
        probe=shell(f"echo $$ > {begun}; exec sleep 900"),
        teardown=shell(f"kill -0 $(cat {begun}) && echo alive >> {log}; echo teardown >> {log}"),
    )
    async with api.serving():
        async with running_agent(api, tmp_path) as host:
            await host.prepare()
        api.taken = False  # the hello resumes nothing: the command to work asks the probe
        async with running_agent(api, tmp_path) as host:
            host.start_lease()
            await until(lambda: begun.exists() and begun.read_text().strip())
            assert (await host.clean()).verdict is HookVerdict.CLEANED
            assert (await host.lease).end is LeaseEnd.GONE
            assert host.agent.host.session is None
    assert log.read_text().split() == ["run", "teardown"]
