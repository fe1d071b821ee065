"""Every module of weight has a test file of its own name in the mirrored folder, or a reason here.

`mitosis/store/pg/wake.py` is tested by `tests/unit/store/pg/test_wake.py`, or by the file of the same
name in `tests/properties` or `tests/integration`; the folder `mitosis` itself is left out.
"""

import re
import tomllib
from pathlib import Path

from tests.support.checkout import ROOT

PACKAGES = ("mitosis", "workflows", "activities", "manager_agent", "api")
KINDS = ("unit", "properties", "integration")
WEIGHT = 100
"""Lines from which a module has to have a test file of its own."""

TESTED_ELSEWHERE = {
    "api/envelope.py": "around every request: integration/api/test_server.py",
    "api/service.py": "opens what every API test uses: integration/api/test_server.py",
    # the command line: commands run whole, against a real API
    "mitosis/__init__.py": "public names only: architecture/test_packaging.py pins them",
    "mitosis/cli/__init__.py": "the map of commands: integration/cli/test_startup.py",
    "mitosis/cli/context.py": "runs under every command: unit/cli/test_bad_input.py",
    "mitosis/cli/follow/interrupt.py": "needs signals: integration/cli/run/test_command.py",
    "mitosis/cli/group/create.py": "integration/cli/test_groups.py",
    "mitosis/cli/group/options.py": "declarations of options: unit/cli/test_numbers.py",
    "mitosis/cli/group/submit.py": "integration/cli/test_groups.py",
    "mitosis/cli/group/verbs.py": "integration/cli/test_groups.py",
    "mitosis/cli/job/define.py": "unit/cli/job/test_commands.py",
    "mitosis/cli/job/runs.py": "integration/cli/test_runs.py",
    "mitosis/cli/job/schedule_view.py": "integration/cli/test_schedules.py",
    "mitosis/cli/job/schedule_options.py": "integration/cli/test_schedules.py",
    "mitosis/client/schedule_calls.py": "integration/api/routes/test_schedules.py",
    "mitosis/contracts/explain.py": "answers: integration/store/managers/test_idle_chain.py",
    "mitosis/contracts/schedule_control.py": "unit/workflows/test_schedules.py",
    "mitosis/store/schedules/requests.py": "integration/store/schedules/test_ticks.py",
    "mitosis/store/schedules/schedules.py": "integration/api/routes/test_schedules.py",
    "workflows/ports.py": "protocols: integration/workflows/test_schedules.py",
    "mitosis/cli/job/stored.py": "integration/cli/test_runs.py",
    "mitosis/cli/job/watch.py": "integration/cli/test_runs.py",
    "mitosis/cli/logs/command.py": "long/product/test_everyday.py",
    "mitosis/cli/manager/commands.py": "integration/cli/test_groups.py",
    "mitosis/cli/template/commands.py": "integration/cli/test_verbs.py",
    "mitosis/cli/worker/commands.py": "integration/cli/test_workers.py",
    "mitosis/cli/worker/process.py": "integration/worker_service/test_service.py",
    "mitosis/cli/worker/view.py": "integration/cli/test_workers.py",
    "mitosis/executors/child.py": "integration/executors/test_contract.py",
    "mitosis/executors/supervisor.py": "integration/executors/test_contract.py",
    "mitosis/executors/cloud_run/rest.py": "integration/executors/cloud_run/test_executor.py",
    "mitosis/worker_service/executor_thread.py": "integration/executors/test_contract.py",
    "mitosis/worker_service/progress.py": "integration/worker_service/test_executors.py",
    "mitosis/worker_service/task_files.py": "unit/worker_service/test_discovery.py",
    "mitosis/worker_service/process.py": "integration/worker_service/test_service.py",
    "mitosis/cli/user/commands.py": "integration/cli/test_users.py",
    "mitosis/client/account_calls.py": "integration/api/routes/test_users.py",
    "mitosis/store/users/administration.py": "integration/api/routes/test_users.py",
    "mitosis/store/users/tokens.py": "integration/api/routes/test_tokens.py",
    "mitosis/store/managers/release.py": "integration/store/managers/test_hello.py",
    "api/admission.py": "integration/api/test_budgets.py",
    "api/app.py": "the routes: integration/api/test_route_matrix.py",
    "api/held_calls.py": "integration/api/routes/test_tokens.py",
    "mitosis/contracts/worker_services.py": "integration/api/routes/test_workers.py",
    "mitosis/contracts/retention.py": "integration/api/routes/test_user_groups.py",
    "mitosis/contracts/service_tasks.py": "integration/api/routes/test_service_tasks.py",
    "mitosis/contracts/templates.py": "integration/api/routes/test_templates.py",
    "mitosis/store/jobs/jobs.py": "integration/api/routes/test_jobs.py",
    "mitosis/store/runs/rows.py": "integration/store/runs/test_advance.py",
    "mitosis/store/tasks/queue_limits.py": "integration/store/runs/test_creating.py",
    "mitosis/store/groups/templates.py": "integration/api/routes/test_templates.py",
    "mitosis/store/control/control_store.py": "adapters: integration/store/test_interleavings.py",
    "mitosis/store/leases/waiting.py": "unit/store/leases/test_reasons.py",
    "mitosis/store/leases/no_host_reasons.py": "unit/store/leases/test_reasons.py",
    "mitosis/store/managers/changes.py": "integration/store/managers/test_draining.py",
    "mitosis/cli/manager/verbs.py": "integration/cli/test_verbs.py",
    "mitosis/cli/task/cancel.py": "integration/cli/test_verbs.py",
    "mitosis/cli/retry.py": "long/product/test_everyday.py",
    "mitosis/cli/run/options.py": "declarations of options: unit/cli/test_numbers.py",
    "mitosis/cli/run/runner.py": "integration/cli/run/test_command.py",
    "mitosis/cli/stack/demo.py": "`.ci/run` runs it whole; unit/cli/test_numbers.py has its options",
    "mitosis/cli/stack/services.py": "the entry points: long/product/test_parts.py",
    "mitosis/cli/stack/whole_stack.py": "the whole of `mitosis up`: long/product/test_up.py",
    "mitosis/cli/task/options.py": "declarations of options: unit/cli/test_numbers.py",
    "mitosis/cli/validation.py": "unit/cli/test_bad_input.py",
    # the SDK
    "mitosis/client/client.py": "one method per route: integration/api/routes/test_task_groups.py",
    "mitosis/client/connection.py": "integration/client/test_bad_network.py",
    "mitosis/client/finding.py": "integration/client/test_task_group.py, unit/cli/test_connection.py",
    "mitosis/client/service_api.py": "integration/worker_service/test_service.py",
    "mitosis/client/run_calls.py": "unit/client/test_job_run.py, integration/client/test_runs.py",
    "mitosis/client/sync_job_run.py": "integration/client/test_runs.py",
    "mitosis/client/sync_task_group.py": "integration/client/test_task_group.py",
    # models without behaviour of their own
    "mitosis/contracts/agent_http.py": "unit/contracts/test_attempt_list.py, integration/api",
    "mitosis/contracts/checking.py": "unit/client/test_parameters.py, unit/contracts/test_task.py",
    "mitosis/contracts/checked_model.py": "unit/contracts/test_mismatch.py",
    "mitosis/contracts/control.py": "models: unit/workflows/test_decisions.py reads them all",
    "mitosis/contracts/http.py": "models: unit/api/test_openapi.py, integration/api/test_refusals.py",
    "mitosis/contracts/wire.py": "models: unit/api/test_bodies.py, unit/contracts/test_strict_numbers.py",
    "mitosis/ipc/messages.py": "models: unit/ipc/test_codec.py sends each of them",
    # definitions of jobs
    "mitosis/jobs/checks.py": "unit/jobs/test_reading.py has each rule",
    "mitosis/jobs/definition.py": "models: unit/jobs/test_reading.py",
    "mitosis/jobs/fields.py": "types of fields: unit/jobs/test_reading.py",
    "mitosis/jobs/problems.py": "unit/jobs/test_reading.py, unit/jobs/test_parameters.py",
    "mitosis/jobs/reference_checks.py": "unit/jobs/test_reading.py has each rule",
    # parts of the scheduling decision, tested by the decisions they lead to
    "mitosis/scheduling/actions.py": "models: unit/scheduling/test_offers.py",
    "mitosis/scheduling/changes.py": "unit/scheduling/test_smallest_change.py",
    "mitosis/scheduling/claims.py": "the rules of the contest: unit/scheduling/test_contest.py",
    "mitosis/scheduling/contest_sentences.py": "unit/scheduling/test_explain.py",
    "mitosis/scheduling/facts.py": "models: properties/scheduling/test_snapshot.py puts them all",
    "mitosis/scheduling/moment.py": "unit/scheduling/test_predicates.py",
    "mitosis/scheduling/remedies.py": "unit/scheduling/test_smallest_change.py",
    "mitosis/scheduling/round.py": "unit/scheduling/test_offers.py",
    "mitosis/scheduling/simulation/entities.py": "models: properties/scheduling/simulation/test_scenes.py",
    "mitosis/scheduling/simulation/lease_events.py": "properties/scheduling/simulation/test_scenes.py",
    "mitosis/scheduling/simulation/simulator.py": "properties/scheduling/simulation/test_scenes.py",
    "mitosis/scheduling/simulation/task_events.py": "properties/scheduling/simulation/test_scenes.py",
    "mitosis/scheduling/simulation/synthetic.py": "properties/scheduling/simulation/test_mixed.py",
    "mitosis/scheduling/simulation/workload.py": "models: unit/scheduling/simulation/test_recording.py",
    "mitosis/scheduling/waiting_line.py": "the order of offers: unit/scheduling/test_offers.py",
    # the store: operations tested by the stories that they are part of
    "mitosis/store/groups/decided_reasons.py": "integration/store/groups/test_explain.py",
    "mitosis/store/groups/definition.py": "integration/store/groups/test_task_groups.py",
    "mitosis/store/groups/views.py": "integration/store/groups/test_task_groups.py",
    "mitosis/store/leases/actions.py": "integration/store/leases/test_scheduler.py",
    "mitosis/store/leases/ending.py": "integration/store/test_interleavings.py",
    "mitosis/store/managers/contact.py": "integration/store/managers/test_hello.py",
    "mitosis/store/output/writing.py": "integration/api/routes/test_output.py",
    "mitosis/store/pg/wake.py": "integration/store/pg/test_outbox.py",
    "mitosis/store/store.py": "opens what all of integration/store/test_campaign.py uses",
    "mitosis/store/tasks/retry.py": "integration/api/test_retry.py",
    "mitosis/store/tasks/views.py": "integration/api/routes/test_tasks.py",
    # processes and workflows: tested in the process that they make
    "mitosis/cli/run/whole_output.py": "integration/cli/run/test_command.py",
    "mitosis/embedded/privileges.py": "integration/embedded/test_postgres.py",
    "mitosis/worker/report.py": "integration/worker/test_command.py, unit/worker/test_output.py",
    "workflows/control.py": "long/workflows/test_lifecycle.py",
    "workflows/manager.py": "workflow/test_manager_timers.py, workflow/test_histories.py",
    "workflows/run.py": "workflow/test_run.py, workflow/test_histories.py",
    "workflows/namespace.py": "integration/workflows/test_relay.py",
    "workflows/task_group.py": "workflow/test_task_group_timers.py, workflow/test_histories.py",
    "mitosis/execution/events.py": "models: unit/execution/test_reactor.py uses them all",
    "manager_agent/hooks.py": "integration/manager_agent/test_environments.py",
    "manager_agent/host.py": "integration/manager_agent/test_lease.py",
    "mitosis/execution/leftovers.py": "integration/manager_agent/test_agent.py",
    "mitosis/execution/state.py": "the reactor's state: unit/execution/test_reactor.py",
    # the API
    "api/bounded_protocol.py": "integration/api/test_pressure.py",
    "api/deps.py": "integration/api/test_access.py",
    "api/errors.py": "unit/client/test_problems.py, integration/api/test_refusals.py",
}
"""Module → why there is no file of its name, and the files of tests/ that test it."""

NAMED = re.compile(r"[\w/]+\.py")


def weighty() -> list[str]:
    paths = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    return [
        str(path.relative_to(ROOT))
        for path in paths
        if len(path.read_text().splitlines()) >= WEIGHT
    ]


def has_its_own(module: str) -> bool:
    path = Path(module.removeprefix("mitosis/"))
    return any((ROOT / "tests" / k / path.with_name(f"test_{path.name}")).is_file() for k in KINDS)


def test_every_test_file_is_run_by_a_target() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    folders = [*settings["tool"]["pytest"]["ini_options"]["testpaths"], "tests/long"]
    files = [path.relative_to(ROOT) for path in (ROOT / "tests").rglob("test_*.py")]
    assert len(files) > 100
    missed = [str(file) for file in files if not any(file.is_relative_to(f) for f in folders)]
    assert missed == [], (
        "name their folder in testpaths (pyproject.toml), or move them into tests/long"
    )


def test_every_module_of_weight_has_a_test_file_or_a_reason() -> None:
    missing = [m for m in weighty() if not has_its_own(m) and m not in TESTED_ELSEWHERE]
    assert missing == [], (
        "add tests/{unit,properties,integration}/<folder>/test_<module>.py, or a reason here"
    )


def test_no_reason_is_out_of_date() -> None:
    needed = {module for module in weighty() if not has_its_own(module)}
    assert TESTED_ELSEWHERE.keys() - needed == set(), "gone, shorter now, or tested by its own file"


def test_every_reason_names_tests_that_exist() -> None:
    named = {module: NAMED.findall(reason) for module, reason in TESTED_ELSEWHERE.items()}
    assert [module for module, names in named.items() if not names] == []
    missing = [
        (module, name)
        for module, names in named.items()
        for name in names
        if not (ROOT / "tests" / name).is_file()
    ]
    assert missing == []
