"""Every field of a plan, a hook, a task and a group does what it says, and a test shows it by its effect.

A field that is accepted and ignored is a lie. Here each has the file of a test that would fail without its
effect, and the words by which it is found there.
"""

from collections.abc import Mapping

import pytest

from mitosis.contracts.allocation import CpuBinding, WorkerAllocationPlan
from mitosis.contracts.hook import HookSpec
from mitosis.contracts.http import TaskGroupSpec
from mitosis.contracts.task import RetryFields, SubmittedTask
from tests.support.checkout import ROOT

LEASE = "integration/manager_agent/test_lease.py"
REAL = "integration/manager_agent/test_real_api.py"
ENVIRONMENTS = "integration/manager_agent/test_environments.py"
COMMAND = "integration/worker/test_command.py"
HANDLERS = "integration/worker/test_handlers.py"
ELIGIBILITY = "integration/store/leases/test_eligibility.py"
REPORT = "integration/store/tasks/test_report.py"
ENDINGS = "integration/store/groups/test_endings.py"

EFFECTS: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "CpuBinding": {
        "strategy": ("unit/contracts/test_allocation.py", "round_robin"),
        "cores": ("unit/contracts/test_allocation.py", "cores=[1, 11, 9]"),
        "cores_per_worker": ("unit/contracts/test_allocation.py", "cores_per_worker=2"),
        "use_cgroups": ("integration/worker/test_cores.py", "test_a_cpuset_cannot_be_left"),
    },
    "WorkerAllocationPlan": {
        "worker_count": (LEASE, "worker_count"),
        "cpu_binding": (LEASE, "sched_getaffinity"),
        "task_prefetch_count": (LEASE, "task_prefetch_count"),
        "max_tasks_per_worker": (
            "integration/worker/test_process_state.py",
            "max_tasks_per_worker",
        ),
        "handler_modules": (HANDLERS, "handler_modules"),
        "max_processes_per_worker": (
            "integration/worker/test_process_limit.py",
            "test_a_fork_bomb_fails_with_the_reason",
        ),
        "python_path": (HANDLERS, "python_path"),
        "environment": (LEASE, "test_the_plan_names_interpreter_and_environment"),
        "worker_python": (LEASE, "test_the_plan_names_interpreter_and_environment"),
    },
    "HookSpec": {
        "command": (ENVIRONMENTS, "command"),
        "environment": (ENVIRONMENTS, '"environment": {"WORD"'),
        "working_directory": (ENVIRONMENTS, '"working_directory": str(folder)'),
        "timeout": (ENVIRONMENTS, "timeout="),
    },
    "SubmittedTask": {
        "command": (COMMAND, "command="),
        "command_encoding": ("integration/cli/run/test_command.py", "test_any_byte_reaches"),
        "handler": (HANDLERS, "handler="),
        "arguments": (HANDLERS, "test_arguments_are_keywords_or_positions"),
        "environment": (COMMAND, "environment"),
        "working_directory": (COMMAND, "working_directory"),
        "timeout_seconds": (COMMAND, "timeout_seconds"),
        "kill_grace_seconds": (COMMAND, "kill_grace_seconds"),
        "stream_output": (
            "integration/cli/run/test_command.py",
            "test_the_whole_output_comes_out",
        ),
        "priority": ("integration/store/tasks/test_claim.py", "priority"),
        "dedup_key": ("integration/store/tasks/test_submit.py", "dedup_key"),
        "labels": ("integration/api/test_retry.py", "labels"),
        "retry": (REPORT, "RetryPolicy"),
    },
    "RetryFields": {
        "max_attempts": (REPORT, "max_attempts"),
        "exit_codes": (REPORT, "exit_codes"),
        "delay_seconds": (REPORT, "delay_seconds"),
        "max_terminations": (
            "integration/store/tasks/test_terminations.py",
            "max_terminations",
        ),
    },
    "TaskGroupSpec": {
        "name": ("integration/api/routes/test_task_groups.py", "name"),
        "group_name": ("integration/api/test_access.py", "group_name"),
        "tags": (ELIGIBILITY, "tags"),
        "labels": ("integration/api/routes/test_task_groups.py", "labels"),
        "tag_match": (ELIGIBILITY, "tag_match"),
        "priority": ("integration/store/leases/test_scheduler.py", "priority"),
        "worker_allocation_plan": (LEASE, "WorkerAllocationPlan"),
        "environment_setup_hook": (ENVIRONMENTS, "setup"),
        "environment_teardown_hook": (ENVIRONMENTS, "teardown"),
        "environment_probe": (ENVIRONMENTS, "probe"),
        "auto_close_timeout": (
            "integration/workflows/test_lifecycle.py",
            "auto_close_timeout",
        ),
        "close_deadline": ("workflow/test_task_group_timers.py", "close_deadline"),
        "max_managers": ("integration/store/leases/test_scheduler.py", "max_managers"),
        "assignment_method": (ELIGIBILITY, "assignment_method"),
        "manager_ids": ("integration/api/routes/test_agents.py", "manager_ids"),
        "reopen_on_submit": ("integration/store/tasks/test_submit.py", "reopen_on_submit"),
        "cancel_grace_seconds": (REAL, "cancel_grace_seconds"),
        "host_lost_after": ("integration/store/test_liveness_settings.py", "host_lost_after"),
        "fence": ("integration/manager_agent/test_faults.py", "fence"),
    },
}
"""Model → field → the file below tests/ and words in it."""

MODELS = {
    **{model.__name__: set(model.model_fields) for model in (CpuBinding, WorkerAllocationPlan)},
    **{model.__name__: set(model.model_fields) for model in (HookSpec, TaskGroupSpec)},
    **{model.__name__: set(model.__struct_fields__) for model in (SubmittedTask, RetryFields)},
}


@pytest.mark.parametrize("model", MODELS)
def test_every_field_has_a_test_of_its_effect(model: str) -> None:
    assert set(EFFECTS[model]) == MODELS[model], "name a test of the effect of each field"
    for field, (file, words) in EFFECTS[model].items():
        assert words in (ROOT / "tests" / file).read_text(), f"{field}: {words} is not in {file}"
