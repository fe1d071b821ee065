"""Whether the workers of a plan can be bound to the cores of a host."""

from functools import lru_cache

from mitosis.contracts.allocation import CpuBinding, WorkerAllocationPlan, worker_cpus
from mitosis.contracts.errors import InvalidRequest


@lru_cache(maxsize=4096)
def binding_mismatch(
    workers: int, binding: CpuBinding | None, cores: tuple[int, ...]
) -> str | None:
    """Return why so many workers cannot be bound to ``cores``; None if they can.

    Cached: a fleet has few kinds of hosts.
    """
    if binding is None:
        return None
    if not cores:
        return "its workers are bound to cores, and the agent of this host reported none"
    try:
        worker_cpus(WorkerAllocationPlan(worker_count=workers, cpu_binding=binding), cores)
    except InvalidRequest as error:
        return error.message
    return None
