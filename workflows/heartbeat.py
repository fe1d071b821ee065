"""Says to Temporal that an activity of the control worker is alive, so that a killed worker is noticed soon.

Our activities are one transaction each and know nothing of it. A short one never beats.
"""

import asyncio
from typing import Any

from temporalio import activity
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

EVERY_SECONDS = 1.0


class HeartbeatInterceptor(Interceptor):
    """Worker interceptor: beats for every activity that has a heartbeat timeout."""

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:  # noqa: A002
        return _Inbound(next)


class _Inbound(ActivityInboundInterceptor):
    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002
        if activity.info().heartbeat_timeout is None:
            return await super().execute_activity(input)
        beats = asyncio.create_task(_beat(), name="heartbeats")
        try:
            return await super().execute_activity(input)
        finally:
            beats.cancel()


async def _beat() -> None:
    while True:
        await asyncio.sleep(EVERY_SECONDS)
        activity.heartbeat()
