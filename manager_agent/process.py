"""The process of an agent: its signals, its exit status, and the end of a stop that hangs."""

import asyncio
import logging
import os
import signal
import sys
from typing import NoReturn

from manager_agent.agent import Agent, AgentConfig
from mitosis.contracts.errors import (
    ConfigurationError,
    ManagerIdInUse,
    MitosisError,
    Superseded,
    Unauthenticated,
)
from mitosis.execution.disk import is_full
from mitosis.execution.file_limit import raise_file_limit
from mitosis.execution.run_folder import HostFolders
from mitosis.execution.threads import started_threads
from mitosis.garbage import settle
from mitosis.stop_deadline import StopDeadline
from mitosis.worker.signals import default_in_children

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_DO_NOT_RESTART = 78
"""A restart would not help: bad token, superseded, id in use, configuration (EX_CONFIG, sysexits(3))."""

ENDS_WITHIN_SECONDS = 6.0
"""After drain and grace everything has ended, or is killed."""

THREADS = 4
"""For slow file systems; made at the start, so that a host without processes to spare keeps its journal."""

log = logging.getLogger(__name__)


async def run_agent(config: AgentConfig) -> int:
    """Run an agent until SIGTERM or SIGINT; return the exit status of its process."""
    raise_file_limit()
    try:
        with HostFolders.lock(
            str(config.manager_id), config.state_dir, config.run_parent
        ) as folders:
            agent = Agent(config, folders)
            loop = asyncio.get_running_loop()
            loop.set_default_executor(started_threads(THREADS))
            deadline = StopDeadline(_stops_within(config))

            def stop() -> None:
                agent.stop()
                deadline.arm()

            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, stop)
            await agent.run()
    except (Superseded, ManagerIdInUse, Unauthenticated, ConfigurationError) as error:
        log.error("agent.refused", extra={"code": error.code, "reason": error.message})  # noqa: TRY400
        return EXIT_DO_NOT_RESTART
    except MitosisError as error:
        log.error("agent.failed", extra={"code": error.code, "reason": error.message})  # noqa: TRY400
        return EXIT_FAILED
    except OSError as error:
        if not is_full(error):
            raise
        log.error(  # noqa: TRY400
            "agent.disk_full",
            extra={"folder": str(config.state_dir), "reason": str(error)},
        )
        return EXIT_FAILED
    return EXIT_OK


def _stops_within(config: AgentConfig) -> float:
    return (config.drain + config.stop_grace).total_seconds() + ENDS_WITHIN_SECONDS


def serve(config: AgentConfig) -> NoReturn:
    """Run an agent and end the process.

    Uses ``os._exit``: about one in seventeen processes with a Temporal worker aborts in the
    interpreter's teardown (temporalio/sdk-python#300), after all work is done.
    """
    default_in_children()
    settle()
    status = asyncio.run(run_agent(config))
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
