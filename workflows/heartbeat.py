"""Sends heartbeats for the activities of the control worker, so that Temporal notices a killed worker soon.

The activities are one transaction each and send none themselves. One that ends within a second sends none.
"""

from typing import Any

from temporalio import activity
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from activities.heartbeats import heartbeats


class HeartbeatInterceptor(Interceptor):
    """Worker interceptor: sends heartbeats for every activity that has a heartbeat timeout."""

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:  # noqa: A002
        return _Inbound(next)


class _Inbound(ActivityInboundInterceptor):
    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002
        if activity.info().heartbeat_timeout is None:
            return await super().execute_activity(input)
        async with heartbeats():
            return await super().execute_activity(input)
