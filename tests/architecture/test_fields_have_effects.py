"""Every field of a plan, a hook, a task and a group does what it says, and a test shows it by its effect.

A field that is accepted and ignored is a lie. Here each has a test that would fail without its effect. The
test must exist, and its text (with what it uses of its module) must name the field.
"""

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache

import pytest

from mitosis.contracts.allocation import CpuBinding, WorkerAllocationPlan
from mitosis.contracts.hook import HookSpec
from mitosis.contracts.http import TaskGroupSpec
from mitosis.contracts.lease_settings import LeaseSettings
from mitosis.contracts.task import RetryFields, SubmittedTask
from tests.support.checkout import ROOT
from tests.support.sources import parsed

ALLOCATION = "unit/contracts/test_allocation.py"
LEASE = "integration/manager_agent/test_lease.py"
MANY = "long/product/test_many_workers.py"
REAL = "integration/manager_agent/test_real_api.py"
ENVIRONMENTS = "integration/manager_agent/test_environments.py"
COMMAND = "integration/worker/test_command.py"
HANDLERS = "integration/worker/test_handlers.py"
RUN = "integration/cli/run/test_command.py"
SCHEDULER = "integration/store/leases/test_scheduler.py"
FLEET = "integration/store/leases/test_fleet.py"
REPORT = "integration/store/tasks/test_report.py"
SUBMIT = "integration/store/tasks/test_submit.py"
EDGES = "integration/store/dependencies/test_edges.py"
GROUPS = "integration/api/routes/test_task_groups.py"
SERVICE_CLAIM = "integration/store/services/test_claim.py"
TERMS = "integration/store/leases/test_lease_terms.py"


@dataclass(frozen=True)
class Shown:
    """A test below tests/ that shows the effect of a field."""

    file: str
    test: str
    by: str | None = None
    """What stands for the field in it, where that is not its name: an option, a local variable."""


BROKEN = "test_a_broken_condition_stops_the_offer_and_is_the_reason"
RETRIES = "test_the_retry_policy_decides_failures_of_the_task_itself"
HOOK = "test_hooks_have_what_commands_of_tasks_have"
AFFINITY = "test_the_affinity_of_a_lease_is_written_from_costs_and_settings"
IDLE = "test_an_idle_host_goes_when_it_has_been_idle_for_what_the_move_costs"
RULES = "test_grace_moves_and_starvation_of_a_decision_are_those_of_the_settings"
OF_PLAN = "test_the_plan_names_interpreter_and_environment"

EFFECTS: Mapping[str, Mapping[str, Shown]] = {
    "CpuBinding": {
        "strategy": Shown(
            ALLOCATION, "test_exclusive_cores_belong_to_one_worker_and_none_is_left_over"
        ),
        "cores": Shown(ALLOCATION, "test_round_robin_gives_worker_i_core_i_modulo_n"),
        "cores_per_worker": Shown(
            ALLOCATION, "test_exclusive_splits_evenly_and_gives_the_remainder_to_the_first_workers"
        ),
        "use_cgroups": Shown(
            "integration/worker/test_cores.py", "test_a_cpuset_cannot_be_left", "cpusets"
        ),
    },
    "WorkerAllocationPlan": {
        "worker_count": Shown(MANY, "test_256_workers_share_the_work_of_one_manager"),
        "cpu_binding": Shown(LEASE, "test_workers_are_pinned_and_read_back_their_cores"),
        "task_prefetch_count": Shown(
            LEASE, "test_unstarted_tasks_of_a_killed_worker_cost_no_attempt"
        ),
        "max_tasks_per_worker": Shown(
            "integration/worker/test_process_state.py",
            "test_a_worker_runs_as_many_tasks_as_the_plan_allows",
        ),
        "handler_modules": Shown(HANDLERS, "test_arguments_are_keywords_or_positions"),
        "max_processes_per_worker": Shown(
            "integration/worker/test_process_limit.py", "test_a_fork_bomb_fails_with_the_reason"
        ),
        "python_path": Shown(HANDLERS, "test_arguments_are_keywords_or_positions"),
        "environment": Shown(LEASE, OF_PLAN),
        "worker_python": Shown(LEASE, OF_PLAN),
    },
    "HookSpec": {
        "command": Shown(ENVIRONMENTS, HOOK),
        "environment": Shown(ENVIRONMENTS, HOOK),
        "working_directory": Shown(ENVIRONMENTS, HOOK),
        "timeout": Shown(ENVIRONMENTS, "test_a_timeout_kills_the_whole_process_group"),
    },
    "SubmittedTask": {
        "command": Shown(COMMAND, "test_no_shell_ever_sees_a_command"),
        "command_encoding": Shown(RUN, "test_any_byte_reaches_the_command", "odd"),
        "handler": Shown(HANDLERS, "test_arguments_are_keywords_or_positions"),
        "named_task": Shown(
            SERVICE_CLAIM,
            "test_a_service_gets_what_it_supports_with_its_own_configuration",
            "submit_named",
        ),
        "arguments": Shown(HANDLERS, "test_arguments_are_keywords_or_positions"),
        "depends_on": Shown(
            EDGES, "test_a_task_is_claimable_when_all_its_parents_have_succeeded", "diamond"
        ),
        "environment": Shown(COMMAND, "test_the_environment_is_the_plan_the_task_and_ours"),
        "working_directory": Shown(COMMAND, "test_a_working_directory_is_entered_and_not_swept"),
        "timeout_seconds": Shown(COMMAND, "test_a_timeout_sends_sigterm_to_the_group"),
        "kill_grace_seconds": Shown(
            COMMAND, "test_what_ignores_sigterm_is_killed_after_the_grace_with_all_its_children"
        ),
        "stream_output": Shown(RUN, "test_the_whole_output_comes_out", "outputs"),
        "priority": Shown(
            "integration/store/tasks/test_claim.py", "test_higher_priority_first_then_age"
        ),
        "dedup_key": Shown(SUBMIT, "test_a_dedup_key_is_taken_while_a_task_has_it"),
        "labels": Shown(
            "integration/api/test_retry.py",
            "test_the_same_part_is_answered_again_and_another_retry_leaves_it_out",
        ),
        "retry": Shown(REPORT, RETRIES),
    },
    "RetryFields": {
        "max_attempts": Shown(REPORT, RETRIES),
        "exit_codes": Shown(REPORT, RETRIES),
        "delay_seconds": Shown(REPORT, "test_delays_double_and_crashes_have_none"),
        "max_terminations": Shown(
            "integration/store/tasks/test_terminations.py",
            "test_a_task_may_have_its_own_number_and_others_in_between_start_the_row_again",
        ),
    },
    "TaskGroupSpec": {
        "name": Shown(GROUPS, "test_a_name_is_taken_once"),
        "group_name": Shown("integration/api/test_access.py", "test_roles_decide"),
        "kind": Shown(
            SERVICE_CLAIM, "test_no_host_is_offered_a_group_of_services", "service_group"
        ),
        "preference_seconds": Shown(
            SERVICE_CLAIM, "test_a_better_service_that_waits_goes_first_for_a_time"
        ),
        "tags": Shown(FLEET, BROKEN),
        "labels": Shown(GROUPS, "test_groups_are_listed_by_what_they_are"),
        "tag_match": Shown("unit/store/leases/test_membership.py", "test_members"),
        "priority": Shown(SCHEDULER, "test_the_higher_priority_gets_the_only_host"),
        "worker_allocation_plan": Shown(LEASE, OF_PLAN, "WorkerAllocationPlan"),
        "environment_setup_hook": Shown(
            ENVIRONMENTS, "test_setup_runs_once_with_its_context", "setup"
        ),
        "environment_teardown_hook": Shown(
            ENVIRONMENTS, "test_teardown_runs_and_the_environment_is_gone", "teardown"
        ),
        "environment_probe": Shown(
            "integration/manager_agent/test_probes.py",
            "test_a_probe_decides_once_under_each_lease_whether_a_checkpoint_is_believed",
            "probe",
        ),
        "auto_close_timeout": Shown(
            "long/workflows/test_lifecycle.py",
            "test_a_changed_auto_close_arms_the_timer_again",
        ),
        "close_deadline": Shown("workflow/test_task_group_timers.py", "test_close_deadline"),
        "max_managers": Shown(
            SCHEDULER, "test_each_host_gets_the_best_of_the_groups_that_it_may_run"
        ),
        "assignment_method": Shown(FLEET, BROKEN),
        "manager_ids": Shown(
            "integration/api/routes/test_agents.py", "test_the_managers_of_a_group"
        ),
        "reopen_on_submit": Shown(SUBMIT, "test_reopen_on_submit"),
        "require_host": Shown(
            "integration/store/groups/test_hosts_fit.py",
            "test_a_group_that_no_registered_host_may_run_is_refused_where_one_is_required",
        ),
        "cancel_grace_seconds": Shown(REAL, "test_a_cancelled_group_kills_what_runs"),
        "host_lost_after": Shown(
            "integration/store/test_liveness_settings.py",
            "test_a_host_is_lost_everywhere_after_the_interval_that_is_set",
        ),
        "fence": Shown(
            "integration/manager_agent/test_faults.py", "test_a_silent_api_fences_the_host"
        ),
        "on_setup_failure": Shown(
            "integration/store/groups/test_failed_setups.py",
            "test_the_setting_says_whether_it_ends",
        ),
        "lease_settings": Shown(TERMS, AFFINITY, "configured"),
    },
    "LeaseSettings": {
        "lease_duration": Shown(TERMS, AFFINITY),
        "longest_lease": Shown(TERMS, AFFINITY),
        "idle_threshold": Shown(TERMS, IDLE),
        "longest_idle": Shown(TERMS, IDLE),
        "preemption_grace": Shown(TERMS, RULES),
    },
}


MODELS = {
    **{model.__name__: set(model.model_fields) for model in (CpuBinding, WorkerAllocationPlan)},
    **{
        model.__name__: set(model.model_fields)
        for model in (HookSpec, TaskGroupSpec, LeaseSettings)
    },
    **{model.__name__: set(model.__struct_fields__) for model in (SubmittedTask, RetryFields)},
}


@pytest.mark.parametrize("model", MODELS)
def test_every_field_has_a_test_of_its_effect(model: str) -> None:
    assert set(EFFECTS[model]) == MODELS[model], "name a test of the effect of each field"
    for field, shown in EFFECTS[model].items():
        word, where = shown.by or field, f"{shown.file}:{shown.test}"
        texts = list(texts_of(shown.file, shown.test))
        assert texts, f"{field}: there is no test {where}"
        named = any(re.search(rf"\b{re.escape(word)}\b", text) for text in texts)
        assert named, f"{field}: {where} does not name {word}"


def texts_of(file: str, test: str) -> Iterator[str]:
    """Yield the source of a test and of what it uses of its own module, fixtures included."""
    known, wanted, seen = definitions(file), [test], set[str]()
    while wanted:
        name = wanted.pop()
        if name in seen or name not in known:
            continue
        seen.add(name)
        node = known[name]
        yield ast.unparse(node)
        wanted += [inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)]
        wanted += [inner.arg for inner in ast.walk(node) if isinstance(inner, ast.arg)]


@cache
def definitions(file: str) -> Mapping[str, ast.stmt]:
    """Return what a module below tests/ defines at its top, by name."""
    found: dict[str, ast.stmt] = {}
    for node in parsed(ROOT / "tests" / file).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found[node.name] = node
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {target.id: node for target in targets if isinstance(target, ast.Name)}
    return found


def test_a_test_that_is_gone_or_silent_about_its_field_is_found() -> None:
    assert not list(texts_of(COMMAND, "test_that_is_not_there"))
    assert "priority" not in "".join(texts_of(COMMAND, "test_no_shell_ever_sees_a_command"))
