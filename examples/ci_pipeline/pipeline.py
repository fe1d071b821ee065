"""A small CI pipeline: copies a project, runs its jobs in parallel, and cleans up.

Each host copies the project once (setup hook), runs jobs in the copy, and always removes it (teardown
hook). Exit status: 0 all jobs passed, 1 a job failed, 2 the copy could not be made.

    python examples/ci_pipeline/pipeline.py [PROJECT]

Needs a running stack (`mitosis up`), or MITOSIS_API_URL and MITOSIS_TOKEN. The hosts must see PROJECT
under the same name; the default is the small project beside this file.
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
    """Return the jobs by name: one compiles everything, and one runs each test file."""
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
                print(f"{len(jobs)} jobs in task group {name}")
                running: dict[Future[TaskInfo], str] = {
                    group.submit_task(task): job for job, task in jobs.items()
                }
                for future in as_completed(running):
                    failed += not passed(running[future], future.result())
        except SetupFailed as error:
            print(f"no job was run: {error}", file=sys.stderr)
            return SETUP_FAILED
        print(
            f"{len(jobs) - failed} passed, {failed} failed; result of the task group: {group.info.result}"
        )
    return JOB_FAILED if failed else ALL_PASSED


def passed(job: str, task: TaskInfo) -> bool:
    """Print how a job ended, with the tail of its output if it failed."""
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
