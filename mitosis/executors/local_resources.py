"""What tasks on this machine may demand in their configuration: free memory and free disk."""

import os
from collections.abc import Mapping
from typing import Any

import psutil

from mitosis.contracts.errors import ConfigurationError
from mitosis.executors.contract import ResourcesRefused, positive

MEMORY, DISK = "memory_mb", "disk_mb"
MEGABYTE = 1_000_000


def check_demands(configuration: Mapping[str, Any]) -> None:
    """Check the demands of a configuration.

    Raises:
        ConfigurationError: names the field and what would be right.
    """
    for name in (MEMORY, DISK):
        value = configuration.get(name)
        if value is not None and positive(value) is None:
            raise ConfigurationError(
                f"configuration.{name} must be a number of megabytes above 0, as 500, not {value!r:.100}"
            )


def require(configuration: Mapping[str, Any], folder: str) -> None:
    """Check that the machine has what the configuration demands now, on the disk of ``folder``.

    Raises:
        ResourcesRefused: names what there is and what is needed.
    """
    needed = configuration.get(MEMORY)
    if needed is not None:
        free = psutil.virtual_memory().available // MEGABYTE
        if free < needed:
            raise ResourcesRefused(f"{free} MB of memory are free; {MEMORY} is {needed:g}")
    needed = configuration.get(DISK)
    if needed is not None:
        disk = os.statvfs(folder)
        free = disk.f_bavail * disk.f_frsize // MEGABYTE
        if free < needed:
            raise ResourcesRefused(f"{free} MB of disk are free at {folder}; {DISK} is {needed:g}")


def estimate(configuration: Mapping[str, Any]) -> float | None:
    """Return the ``estimate_seconds`` of a configuration, if it has one."""
    return positive(configuration.get("estimate_seconds"))
