"""Tasks that end their agent, beside tasks that do not; stops in order (protocol P5, "Who is charged")."""

import sys
from pathlib import Path

import pytest

from mitosis.contracts.allocation import WorkerAllocationPlan
from mitosis.contracts.task import TaskSubmission
from mitosis.store.groups.explain import explain_group
from tests.support.fleet import Diary, Fleet, FleetHost, diary, it, shared_fleet
from tests.support.supervised import supervised

__all__ = ["diary", "it", "shared_fleet"]
pytestmark = pytest.mark.asyncio(loop_scope="module")


async def asked_to_stop(it: Fleet, host: FleetHost) -> None:
    before = host.said("agent.stopping")
    assert host.process is not None
    host.process.terminate()
    await it.until(lambda: host.said("agent.stopping") > before)


def killer(diary: Diary, pid: Path) -> TaskSubmission:
    script = f"echo S killer >> {diary.folder}/diary; kill -9 $(cat {pid}); sleep 60"
    return TaskSubmission(command=["/bin/sh", "-c", script])


async def test_a_task_that_kills_its_agent_is_poison_and_innocents_go_on(
    it: Fleet, diary: Diary
) -> None:
    host = await it.host(start=False)
    async with supervised(host) as pid:
        innocents = [diary.task(f"innocent{n}", wait=True) for n in range(2)]
        tasks = (innocents[0], killer(diary, pid), innocents[1])
        group = await it.group(*tasks, workers=3, host_lost_after="60s")
        await it.until(lambda: diary.began("killer") == 2)
        diary.go("innocent0", "innocent1")
        info = await it.settled(group)
    assert (info.tasks_succeeded, info.tasks_failed) == (2, 1)
    assert diary.began("killer") == 3, "known from its first start on, although that took no second"
    ended = [task async for task in it.client.tasks(group)]
    failed = await it.client.task(next(task.task_uuid for task in ended if task.state == "failed"))
    assert failed.kind == "host_lost"
    assert str((failed.detail or {})["message"]).startswith("poison: ")
    assert [one.kind for one in failed.failures] == ["host_lost"] * 3


KILLER = """
import os, subprocess, sys, time
def kill(waiting):
    subprocess.run(["/bin/sh", "-c", waiting], check=True)
    os.kill(os.getppid(), 9)
    time.sleep(60)
"""


def killer_of_its_zygote(diary: Diary, form: str, innocents: int) -> TaskSubmission:
    """Ends the parent of its worker twice when all innocents run beside it, and then at once."""
    log = f"{diary.folder}/diary"
    waiting = (
        f"echo S killer >> {log}; n=$(grep -c 'S killer' {log}); until [ $n -gt 2 ]"
        f" || [ $(grep -c 'S innocent' {log}) -ge $(($n * {innocents})) ]; do sleep 0.02; done"
    )
    if form == "handler":
        (diary.folder / "killers.py").write_text(KILLER)
        return TaskSubmission(handler="killers:kill", arguments=[waiting])
    script = f"{waiting}; kill -9 $(cut -d' ' -f4 /proc/$PPID/stat); sleep 60"
    return TaskSubmission(command=["/bin/sh", "-c", script])


@pytest.mark.parametrize("form", ["handler", "command"])
async def test_a_task_that_kills_its_zygote_is_poison_and_innocents_go_on(
    it: Fleet, diary: Diary, form: str
) -> None:
    """All workers of the host die each time; nothing says which of their tasks did it."""
    await it.host()
    names = ("innocent0", "innocent1")
    killer = killer_of_its_zygote(diary, form, len(names))
    tasks = (*(diary.task(name, wait=True) for name in names), killer)
    plan = WorkerAllocationPlan(
        worker_count=3,
        handler_modules=("killers",) if form == "handler" else (),
        python_path=(str(diary.folder),),
    )
    group = await it.group(*tasks, worker_allocation_plan=plan, host_lost_after="60s")
    await it.until(lambda: diary.began("killer") == 2)
    await it.until(lambda: all(diary.began(name) == 2 for name in names))
    diary.go(*names)
    info = await it.settled(group)
    assert (info.tasks_succeeded, info.tasks_failed) == (2, 1)
    assert diary.began("killer") == 3, "its last start was alone on the host"
    ended = [await it.client.task(task.task_uuid) async for task in it.client.tasks(group)]
    (failed,) = [task for task in ended if task.state == "failed"]
    assert failed.kind == "workers_lost"
    said = str((failed.detail or {})["message"])
    assert said.startswith("poison: lost 3 times, the last time while nothing else ran there")
    assert said.endswith(
        "the zygote of its worker ended while it ran, and every worker there with it: killed by SIGKILL"
    )
    assert [one.kind for one in failed.failures] == ["workers_lost"] * 3
    for task in ended:
        if task is not failed:
            assert {one.kind for one in task.failures} == {"workers_lost"}
            assert len(task.failures) == 2, "lost with the killer, and then alone"


async def test_a_stop_that_is_cut_short_charges_nothing(it: Fleet, diary: Diary) -> None:
    """The agent is killed while it waits for its tasks: its next hello says that it was stopping."""
    host = await it.host()
    group = await it.group(diary.task("long", wait=True), workers=1, host_lost_after="60s")
    await it.until(lambda: diary.began("long"))
    await asked_to_stop(it, host)
    await host.kill()
    await host.start()
    await it.until(lambda: diary.began("long") == 2)
    assert (await it.rows("SELECT lost_count FROM open_task"))[0]["lost_count"] == 0
    await host.kill()
    await host.start()
    await it.until(lambda: diary.began("long") == 3)
    lost = await it.rows("SELECT lost_count FROM open_task")
    assert lost[0]["lost_count"] == 1, "the record of that stop is gone"
    diary.go("long")
    assert (await it.settled(group)).tasks_succeeded == 1


async def test_a_host_that_cannot_start_workers_gives_the_work_to_another(
    it: Fleet, diary: Diary
) -> None:
    """The failure is remembered and shown; the healthy host is not kept idle."""
    bad = await it.host()
    python = diary.folder / "python"
    python.write_text(f"""#!/bin/sh
[ "$MITOSIS_MANAGER_ID" = "{bad.manager_id}" ] && exit 126
exec "{sys.executable}" "$@"
""")
    python.chmod(0o755)
    plan = WorkerAllocationPlan(worker_count=1, worker_python=str(python))
    group = await it.group(diary.task("t"), worker_allocation_plan=plan)
    await it.until(lambda: bad.said("work.given_up"))
    await it.until(lambda: bad.said("session.over"))
    store = it.api.app_state.store
    (host,) = (await explain_group(store, group)).hosts
    assert "could not start workers: the zygote ended before it was ready" in host.line
    await it.host()
    assert (await it.settled(group)).tasks_succeeded == 1
    assert bad.said("work.given_up") == 1, "not tried again at once"
