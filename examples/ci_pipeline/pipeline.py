"""A small continuous integration: prepare a copy of a project, run its jobs side by side, clean up.

Each host copies the project once (the setup hook), runs jobs in the copy, and removes it (the teardown
hook), whatever happens in between. The exit status is that of a CI: 0 all jobs passed, 1 a job failed,
2 the copy could not be made.

    python examples/ci_pipeline/pipeline.py [PROJECT]

Needs a running stack (`mitosis up`), or MITOSIS_API_URL and MITOSIS_TOKEN. The hosts must see PROJECT
under the same name; without it, the small one beside this file is tested.
"""

import secrets
import sys
import tempfile
from concurrent.futures import Future, as_completed
from pathlib import Path

from mitosis import (
    HookSpec,
    SetupFailed,
    SyncClient,
    TaskGroupSpec,
    TaskSubmission,
    WorkerAllocationPlan,
)
from mitosis.contracts.http import TaskInfo

ALL_PASSED, JOB_FAILED, SETUP_FAILED = range(3)


def jobs_of(project: Path, workspace: str) -> dict[str, TaskSubmission]:
    """What is to be run, by name: one job compiles everything, and one runs each file of tests."""
    python = sys.executable
    commands = {"compile": [python, "-m", "compileall", "-q", "."]}
    for file in sorted(project.glob("test_*.py")):
        commands[file.stem] = [python, "-m", "unittest", file.stem]
    return {
        name: TaskSubmission(command=command, working_directory=workspace, timeout_seconds=300)
        for name, command in commands.items()
    }


def spec(project: Path, name: str, workspace: str) -> TaskGroupSpec:
    return TaskGroupSpec(
        name=name,
        labels=frozenset({"ci"}),
        worker_allocation_plan=WorkerAllocationPlan(worker_count=2),
        environment_setup_hook=HookSpec(command=("cp", "-r", "--", str(project), workspace)),
        environment_teardown_hook=HookSpec(command=("rm", "-rf", "--", workspace)),
    )


def main(project: Path) -> int:
    name = f"ci-{secrets.token_hex(4)}"
    workspace = f"{tempfile.gettempdir()}/mitosis-{name}"
    jobs = jobs_of(project, workspace)
    failed = 0
    with SyncClient.connect() as client:
        try:
            with client.task_group(spec(project, name, workspace)) as group:
                print(f"{len(jobs)} jobs in group {name}")
                running: dict[Future[TaskInfo], str] = {
                    group.submit_task(task): job for job, task in jobs.items()
                }
                for future in as_completed(running):
                    failed += not passed(running[future], future.result())
        except SetupFailed as error:
            print(f"nothing was run: {error}", file=sys.stderr)
            return SETUP_FAILED
        print(
            f"{len(jobs) - failed} passed, {failed} failed; the group's result: {group.info.result}"
        )
    return JOB_FAILED if failed else ALL_PASSED


def passed(job: str, task: TaskInfo) -> bool:
    """Say how a job went; if it did not go well, with the end of what it printed."""
    seconds = 0.0
    if task.started_at and task.finished_at:
        seconds = (task.finished_at - task.started_at).total_seconds()
    if task.state == "succeeded":
        print(f"  passed  {seconds:6.2f} s  {job}")
        return True
    print(f"  FAILED  {seconds:6.2f} s  {job}: {task.kind} {task.exit_code}")
    detail = task.detail or {}
    for line in f"{detail.get('stdout', '')}{detail.get('stderr', '')}".splitlines():
        print(f"          | {line}")
    return False


if __name__ == "__main__":
    given = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "project"
    if not given.is_dir():
        sys.exit(f"usage: pipeline.py [PROJECT]; there is no folder {given}")
    sys.exit(main(given.resolve()))
