"""A control worker over ports in memory."""

from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Worker

from tests.workflow.memory import Host, MemoryGroups, MemoryHost, MemoryRetention
from tests.workflow.memory_runs import MemoryRuns
from workflows.worker import ControlPorts, control_worker


def running(
    environment: WorkflowEnvironment,
    groups: MemoryGroups | None = None,
    host: MemoryHost | None = None,
    retention: MemoryRetention | None = None,
    runs: MemoryRuns | None = None,
) -> Worker:
    """Use with ``async with``."""
    clock = environment.get_current_time
    one = host or MemoryHost(clock, Host())
    ports = ControlPorts(
        groups or MemoryGroups(clock),
        one,
        one,
        retention or MemoryRetention(),
        runs or MemoryRuns(clock),
    )
    return control_worker(environment.client, ports)
