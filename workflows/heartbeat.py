"""Sends heartbeats for the activities of the control worker, so that Temporal notices a killed worker soon.

The activities are one transaction each and send none themselves. One that ends within a second sends none.
"""

import asyncio
from typing import Any

from temporalio import activity
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

EVERY_SECONDS = 1.0


class HeartbeatInterceptor(Interceptor):
    """Worker interceptor: sends heartbeats for every activity that has a heartbeat timeout."""

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:  # noqa: A002
        return _Inbound(next)


class _Inbound(ActivityInboundInterceptor):
    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002
        if activity.info().heartbeat_timeout is None:
            return await super().execute_activity(input)
        heartbeats = asyncio.create_task(_send_heartbeats(), name="heartbeats")
        try:
            return await super().execute_activity(input)
        finally:
            heartbeats.cancel()


async def _send_heartbeats() -> None:
    while True:
        await asyncio.sleep(EVERY_SECONDS)
        activity.heartbeat()
