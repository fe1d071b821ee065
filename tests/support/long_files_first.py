"""A pytest plugin: files that take long begin first, so that no worker is left with one at the end.

Within the long ones, and after them, the order stays random. Needs `--no-loadscope-reorder` under xdist.
"""

import pytest

LONG = frozenset(
    {
        "long/chaos/test_campaign.py",
        "long/chaos/test_hooks.py",
        "long/chaos/test_in_parts.py",
        "integration/cli/run/test_command.py",
        "integration/cli/test_api_away.py",
        "integration/cli/test_groups.py",
        "integration/cli/test_startup.py",
        "long/product/test_own_stack.py",
        "integration/client/test_task_group.py",
        "integration/embedded/test_postgres.py",
        "integration/embedded/test_stack.py",
        "integration/manager_agent/test_agent.py",
        "integration/manager_agent/test_lease.py",
        "integration/store/test_fault_endings.py",
        "integration/workflows/test_temporal_cli.py",
        "long/product/test_everyday.py",
        "long/product/test_examples.py",
        "long/product/test_fault_blame.py",
        "long/product/test_fault_charges.py",
        "long/product/test_fault_debts.py",
        "long/product/test_fault_hosts.py",
        "long/product/test_fault_network.py",
        "long/product/test_fault_reports.py",
        "long/product/test_guides.py",
        "long/product/test_live_output.py",
        "long/product/test_parts.py",
        "long/product/test_pressure_disk.py",
        "long/product/test_pressure_outage.py",
        "long/product/test_run_faults.py",
        "long/product/test_up.py",
        "long/store/test_drain.py",
        "long/workflows/test_lifecycle.py",
    }
)
"""Those above 10 seconds of CPU time."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.nodeid.partition("::")[0].removeprefix("tests/") not in LONG)
