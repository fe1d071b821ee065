"""Runs the agent's Temporal worker: activities of the host task queue, until the agent ends.

The agent works without Temporal; this keeps trying to connect.
"""

import asyncio
import logging
from dataclasses import dataclass
from datetime import timedelta

from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.exceptions import TemporalError
from temporalio.runtime import Runtime, TelemetryConfig
from temporalio.worker import PollerBehaviorSimpleMaximum, Worker

from activities.host import HostActivities, HostPort
from mitosis.execution.backoff import AGENT_POLICY
from mitosis.retry_policy import Backoff

MAX_ACTIVITIES = 8
"""One lease and a few other commands."""
POLLERS = 2
HEARTBEAT_THROTTLE = timedelta(seconds=1)
WORKER_HEARTBEAT = timedelta(seconds=5)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TemporalTarget:
    """Where the agent's commands come from."""

    address: str
    namespace: str
    task_queue: str
    tls: bool = False
    api_key: str | None = None


async def poll_for_ever(target: TemporalTarget, host: HostPort) -> None:
    """Run the worker; connect again whenever it ends. Cancelled at the end of the agent."""
    runtime = Runtime(telemetry=TelemetryConfig(), worker_heartbeat_interval=WORKER_HEARTBEAT)
    backoff = Backoff(AGENT_POLICY)
    while True:
        try:
            client = await Client.connect(
                target.address,
                namespace=target.namespace,
                data_converter=pydantic_data_converter,
                runtime=runtime,
                tls=target.tls,
                api_key=target.api_key,
            )
            worker = _worker(client, target.task_queue, HostActivities(host))
            log.info("temporal.polling", extra={"task_queue": target.task_queue})
            backoff.reset()
            await worker.run()
        except (RuntimeError, OSError, TemporalError) as error:
            if backoff.failures == 0:
                log.warning("temporal.unreachable", extra={"reason": str(error)})
        await asyncio.sleep(backoff.next_pause())


def _worker(client: Client, task_queue: str, activities: HostActivities) -> Worker:
    return Worker(
        client,
        task_queue=task_queue,
        activities=[
            activities.prepare_environment,
            activities.run_lease,
            activities.clean_environment,
        ],
        max_concurrent_activities=MAX_ACTIVITIES,
        activity_task_poller_behavior=PollerBehaviorSimpleMaximum(POLLERS),
        max_heartbeat_throttle_interval=HEARTBEAT_THROTTLE,
        default_heartbeat_throttle_interval=HEARTBEAT_THROTTLE,
        graceful_shutdown_timeout=timedelta(seconds=2),
    )
