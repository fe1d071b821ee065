"""Plans the cores and checks the file descriptors of the workers on this host."""

import os
import resource
from uuid import UUID

from mitosis.contracts.allocation import (
    DESCRIPTORS_OF_AGENT,
    DESCRIPTORS_PER_WORKER,
    WorkerAllocationPlan,
    worker_cpus,
)
from mitosis.contracts.errors import InvalidRequest
from mitosis.worker.cpuset import refusal


def plan_cpus(plan: WorkerAllocationPlan, files: int | None = None) -> list[frozenset[int] | None]:
    """Return the cores of every worker on this host, by slot.

    Args:
        plan: of the group.
        files: how many files a process may open; None: ask the kernel.

    Raises:
        InvalidRequest: a core does not exist here, exclusive cores are fewer than workers, or the
            workers would need more open files than this process may have, or the plan wants cores enforced
            and no cpuset cgroup can be made here.
    """
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0] if files is None else files
    most = max(0, (limit - DESCRIPTORS_OF_AGENT) // DESCRIPTORS_PER_WORKER)
    if limit != resource.RLIM_INFINITY and plan.worker_count > most:
        raise InvalidRequest(
            f"{plan.worker_count} workers need more than the {limit} open files this host allows an"
            f" agent; at most {most} workers are possible (raise LimitNOFILE or ulimit -n)",
            field="worker_allocation_plan.worker_count",
        )
    if plan.enforces_cores and (why := refusal()) is not None:
        raise InvalidRequest(
            f"cores cannot be enforced on this host: {why}; leave use_cgroups out to pin by affinity",
            field="worker_allocation_plan.cpu_binding.use_cgroups",
        )
    return worker_cpus(plan, sorted(os.sched_getaffinity(0)))


def cpuset_prefix(manager_id: UUID) -> str:
    """Return the beginning of the names of the cpuset cgroups of an agent's workers."""
    return f"mitosis-{manager_id}-"
