"""A pytest plugin: files that take long begin first, so that no worker is left with one at the end.

Within the long ones, and after them, the order stays random. Needs `--no-loadscope-reorder` under xdist.
"""

import pytest

LONG = frozenset(
    {
        "chaos/test_campaign.py",
        "chaos/test_hooks.py",
        "chaos/test_in_parts.py",
        "integration/cli/run/test_command.py",
        "integration/cli/run/test_own_stack.py",
        "integration/client/test_task_group.py",
        "integration/embedded/test_postgres.py",
        "integration/embedded/test_stack.py",
        "integration/manager_agent/test_agent.py",
        "integration/manager_agent/test_lease.py",
        "integration/product/test_everyday.py",
        "integration/product/test_examples.py",
        "integration/product/test_fault_blame.py",
        "integration/product/test_fault_charges.py",
        "integration/product/test_fault_debts.py",
        "integration/product/test_fault_hosts.py",
        "integration/product/test_fault_network.py",
        "integration/product/test_fault_reports.py",
        "integration/product/test_guides.py",
        "integration/product/test_live_output.py",
        "integration/product/test_parts.py",
        "integration/product/test_pressure_disk.py",
        "integration/product/test_pressure_outage.py",
        "integration/product/test_up.py",
        "integration/store/test_drain.py",
        "integration/workflows/test_lifecycle.py",
    }
)
"""Those above 20 seconds on two cores (`--durations`)."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.nodeid.partition("::")[0].removeprefix("tests/") not in LONG)
