"""The settings of one worker, and the environment of its tasks."""

import os
from collections.abc import Mapping

import msgspec

from mitosis.contracts.variables import without_settings
from mitosis.ipc.endpoints import last_words_identity, worker_identity
from mitosis.worker.zygote_protocol import Setup


class WorkerSettings(msgspec.Struct, array_like=True, frozen=True):
    """The slot of a worker, and the setup that all workers of the session share."""

    slot: int
    generation: int
    cpus: tuple[int, ...] | None
    setup: Setup

    @property
    def identity(self) -> bytes:
        """The identity of its DEALER socket; each generation has another, so late messages are dropped."""
        return worker_identity(self.slot, self.generation)

    @property
    def last_words_identity(self) -> bytes:
        """The identity of a second socket, if a task has closed the first."""
        return last_words_identity(self.slot, self.generation)

    @property
    def pids_group(self) -> str:
        """The name of its cgroup: called in the worker, a child of the zygote."""
        return f"{pids_groups(self.setup)}{os.getppid()}.{self.slot}"

    @property
    def scratch_folder(self) -> str:
        return os.path.join(self.setup.scratch_folder, f"slot-{self.slot}")  # noqa: PTH118 - a string is wanted


def pids_groups(setup: Setup) -> str:
    """Return the beginning of the names of the cgroups of a manager; the pid of a zygote follows."""
    return f"mitosis-{setup.manager_id}."


def session_environment(setup: Setup, inherited: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a zygote: inherited without settings, then the plan's, then Mitosis'."""
    return {
        **without_settings(inherited),
        **setup.environment,
        "MITOSIS_MANAGER_ID": setup.manager_id,
        "MITOSIS_WORKER_MODE": "ipc",
        "MITOSIS_WORKER_ENDPOINT": setup.endpoint,
        "MITOSIS_TASK_GROUP_UUID": setup.task_group_id,
        "MITOSIS_TASK_GROUP_NUMBER": str(setup.task_group_number),
        "MITOSIS_TASK_GROUP_NAME": setup.task_group_name,
        "MITOSIS_GROUP_NAME": setup.group_name,
    }


def worker_variables(settings: WorkerSettings, cpus: tuple[int, ...]) -> dict[str, str]:
    """Return the variables that a worker adds to its session's environment; ``cpus`` as read back."""
    return {
        "MITOSIS_WORKER_ID": str(settings.slot),
        "MITOSIS_WORKER": f"{settings.setup.manager_id}:{settings.slot}:{settings.generation}",
        "MITOSIS_CPUS": ",".join(map(str, cpus)),
        "MITOSIS_EXEC_DIR": settings.scratch_folder,
    }
