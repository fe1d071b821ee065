"""The worker plan of a task group: workers per host, their cores and requirements.

Models and pure functions.
"""

from collections.abc import Sequence
from enum import StrEnum

from pydantic import ConfigDict, Field, field_validator

from mitosis.contracts.checked_model import CheckedModel, Flag, Integer
from mitosis.contracts.environment import Environment, ShownEnvironment
from mitosis.contracts.errors import InvalidRequest

DESCRIPTORS_PER_WORKER = 3
"""In the zygote: pidfd, last words, evidence. The agent itself needs one, the worker's socket."""
DESCRIPTORS_OF_AGENT = 100
"""Sockets, pipes and files of the agent itself; generous, because libzmq aborts when there are none."""


class CpuBindingStrategy(StrEnum):
    ROUND_ROBIN = "round_robin"
    """Worker i gets core ``cores[i mod n]``."""
    EXCLUSIVE = "exclusive"
    """Cores are split evenly, the remainder to the first workers; no core is shared."""
    SHARED = "shared"
    """Every worker may use all listed cores."""


class CpuBinding(CheckedModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    strategy: CpuBindingStrategy = CpuBindingStrategy.ROUND_ROBIN
    cores: tuple[Integer, ...] | None = Field(default=None, min_length=1)
    """Core ids as the kernel numbers them; None = every core the agent may use."""
    cores_per_worker: Integer | None = Field(default=None, ge=1)
    """Exclusive only: exactly this many for each worker."""
    use_cgroups: Flag = False
    """Confine each worker by a cpuset cgroup, which its tasks cannot leave. A host that cannot make one
    refuses the plan. False: by affinity, which a task may widen; its result then says so."""

    @field_validator("cores")
    @classmethod
    def _distinct(cls, cores: tuple[int, ...] | None) -> tuple[int, ...] | None:
        if cores is not None and (len(set(cores)) != len(cores) or min(cores) < 0):
            raise ValueError("core ids must be distinct and not negative")
        return cores


class PlanInfo(CheckedModel):
    """A plan of workers as a user may see it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    worker_count: Integer = Field(default=1, ge=1, le=10_000)
    cpu_binding: CpuBinding | None = None
    task_prefetch_count: Integer | None = Field(default=None, ge=0, le=10_000)
    """Tasks a host holds beyond those its workers run; None = chosen from the task rate."""
    max_tasks_per_worker: Integer | None = Field(default=None, ge=1, le=2**31 - 1)
    """A worker process runs so many tasks, then a fresh one takes its slot. None = no limit."""
    max_processes_per_worker: Integer | None = Field(default=None, ge=1, le=4_194_304)
    """Processes and threads that the task of a worker may have at the same time; a task that has more is
    killed. None = 4096, or less where all workers together could take more than half of the host's."""
    handler_modules: tuple[str, ...] = ()
    """Modules that the zygote imports once, before it forks the workers."""
    python_path: tuple[str, ...] = ()
    """Absolute folders put first on ``sys.path`` of the workers."""
    environment: ShownEnvironment = Field(default={})
    worker_python: str | None = None
    """Another interpreter for the workers (it needs mitosis, msgspec and pyzmq)."""

    @property
    def enforces_cores(self) -> bool:
        return self.cpu_binding is not None and self.cpu_binding.use_cgroups

    @field_validator("python_path")
    @classmethod
    def _absolute(cls, folders: tuple[str, ...]) -> tuple[str, ...]:
        for folder in folders:
            if not folder.startswith("/"):
                raise ValueError(f"{folder!r} must be an absolute path")
        return folders


class WorkerAllocationPlan(PlanInfo):
    environment: Environment = Field(default={})
    """Environment of the workers, and so of their tasks."""


def worker_cpus(
    plan: WorkerAllocationPlan, available: Sequence[int]
) -> list[frozenset[int] | None]:
    """One CPU set per worker, index = worker slot; None = unpinned.

    Args:
        plan: how many workers, and how to bind them.
        available: the cores this host offers, as ``sched_getaffinity(0)`` of its agent gave them.

    Raises:
        InvalidRequest: a core does not exist here, or exclusive cores are fewer than workers.
    """
    count, binding = plan.worker_count, plan.cpu_binding
    if binding is None:
        return [None] * count
    cores = list(binding.cores if binding.cores is not None else sorted(available))
    missing = sorted(set(cores) - set(available))
    if missing:
        raise InvalidRequest(
            f"this host has no core {', '.join(map(str, missing))}; it offers {sorted(available)}",
            field="worker_allocation_plan.cpu_binding.cores",
        )
    match binding.strategy:
        case CpuBindingStrategy.SHARED:
            return [frozenset(cores)] * count
        case CpuBindingStrategy.ROUND_ROBIN:
            return [frozenset({cores[slot % len(cores)]}) for slot in range(count)]
        case CpuBindingStrategy.EXCLUSIVE:
            return list(_exclusive(cores, count, binding.cores_per_worker))


def _exclusive(cores: list[int], count: int, per_worker: int | None) -> list[frozenset[int]]:
    needed = count * (per_worker or 1)
    if needed > len(cores):
        raise InvalidRequest(
            f"{count} exclusive workers need {needed} cores, but {len(cores)} are listed: {cores}",
            field="worker_allocation_plan.worker_count",
        )
    share, extra = (per_worker, 0) if per_worker else divmod(len(cores), count)
    sets, start = [], 0
    for slot in range(count):
        size = share + (1 if slot < extra else 0)
        sets.append(frozenset(cores[start : start + size]))
        start += size
    return sets
