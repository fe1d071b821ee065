"""The process of a worker service: its signals and its exit status."""

import asyncio
import logging
import os
import signal
import sys
from typing import NoReturn

from mitosis.contracts.errors import (
    ConfigurationError,
    InvalidRequest,
    ManagerIdInUse,
    MitosisError,
    PermissionDenied,
    Superseded,
    Unauthenticated,
    WorkerIdInUse,
)
from mitosis.execution.disk import is_full
from mitosis.execution.file_limit import raise_file_limit
from mitosis.execution.run_folder import HostFolders
from mitosis.execution.threads import started_threads
from mitosis.stop_deadline import StopDeadline
from mitosis.worker.signals import default_in_children
from mitosis.worker_service.config import ServiceConfig
from mitosis.worker_service.discovery import Discovery
from mitosis.worker_service.service import Service, process_id

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_DO_NOT_RESTART = 78
"""A restart would not help: bad token, superseded, id in use, configuration (EX_CONFIG, sysexits(3))."""
ENDS_WITHIN_SECONDS = 8.0
"""After the grace of a forced stop everything has ended, or is killed."""
THREADS = 2

log = logging.getLogger(__name__)

_REFUSALS = (
    Superseded,
    WorkerIdInUse,
    Unauthenticated,
    PermissionDenied,
    InvalidRequest,
    ConfigurationError,
)


async def run_service(config: ServiceConfig, discovery: Discovery) -> int:
    """Run a worker service until SIGTERM or SIGINT; return the exit status of its process."""
    raise_file_limit()
    try:
        with _folders(config) as folders:
            service = Service(config, discovery, folders)
            loop = asyncio.get_running_loop()
            loop.set_default_executor(started_threads(THREADS))
            deadline = StopDeadline(config.stop_grace.total_seconds() + ENDS_WITHIN_SECONDS)

            def stop() -> None:
                service.stop()
                if service.forced:
                    deadline.arm()

            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, stop)
            await service.run()
    except _REFUSALS as error:
        log.error("worker.refused", extra={"code": error.code, "reason": error.message})  # noqa: TRY400
        return EXIT_DO_NOT_RESTART
    except MitosisError as error:
        log.error("worker.failed", extra={"code": error.code, "reason": error.message})  # noqa: TRY400
        return EXIT_FAILED
    except OSError as error:
        if not is_full(error):
            raise
        log.error(  # noqa: TRY400
            "worker.disk_full", extra={"folder": str(config.state_dir), "reason": str(error)}
        )
        return EXIT_FAILED
    return EXIT_OK


def _folders(config: ServiceConfig) -> HostFolders:
    """Lock the folders of the service.

    Raises:
        ConfigurationError: another process has them.
    """
    try:
        return HostFolders.lock(process_id(config.state_dir), config.state_dir, config.run_parent)
    except ManagerIdInUse:
        raise ConfigurationError(
            f"another process uses {config.state_dir}: give each worker service a state folder of its own"
            " (--state-dir)"
        ) from None


def serve(config: ServiceConfig, discovery: Discovery) -> NoReturn:
    """Run a worker service and end the process."""
    default_in_children()
    status = asyncio.run(run_service(config, discovery))
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
