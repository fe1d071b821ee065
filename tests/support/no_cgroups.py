"""A handler module for workers that must find no pids cgroup: imported by the zygote before it forks."""

from mitosis.worker import process_limit


def _none() -> None:
    return None


process_limit.pids_folder = _none  # type: ignore[assignment]
