"""A pytest plugin: files that take long begin first, so that no worker is left with one at the end.

Within the long ones, and after them, the order stays random. Needs `--no-loadscope-reorder` under xdist.
"""

import pytest

LONG = frozenset(
    {
        "test_campaign.py",
        "test_control_lifecycle.py",
        "test_everyday.py",
        "test_examples.py",
        "test_fault_hosts.py",
        "test_fault_network.py",
        "test_guides.py",
        "test_in_parts.py",
        "test_pressure_outage.py",
        "test_run.py",
    }
)
"""Those above half a minute on two cores (`--durations`)."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path.name not in LONG)
