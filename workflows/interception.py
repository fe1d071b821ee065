"""Prevents a message with too many arguments from blocking a workflow permanently.

A handler that is called with too many arguments raises TypeError, and Temporal then retries the workflow
task without end, before every later message (measured). Our handlers have at most one argument,
so more than one is an error of the sender: signals are dropped with a warning, updates are refused.
"""

from typing import Any

from temporalio import workflow
from temporalio.exceptions import ApplicationError
from temporalio.worker import (
    HandleSignalInput,
    HandleUpdateInput,
    Interceptor,
    WorkflowInboundInterceptor,
    WorkflowInterceptorClassInput,
)

from mitosis.contracts.errors import InvalidRequest
from mitosis.contracts.temporal_names import POKE


class OneArgument(Interceptor):
    """Worker interceptor of the control worker."""

    def workflow_interceptor_class(
        self,
        input: WorkflowInterceptorClassInput,  # noqa: A002 the SDK's name
    ) -> type[WorkflowInboundInterceptor]:
        return _Inbound


class _Inbound(WorkflowInboundInterceptor):
    async def handle_signal(self, input: HandleSignalInput) -> None:  # noqa: A002
        if input.signal == POKE:
            input.args = ()  # a poke carries no information
        if len(input.args) > 1:
            workflow.logger.warning("signal.dropped", extra=_facts(input.signal, input.args))
            return
        await super().handle_signal(input)

    async def handle_update_handler(self, input: HandleUpdateInput) -> Any:  # noqa: A002
        if len(input.args) > 1:
            raise ApplicationError(
                f"{input.update} takes one argument, an object, or none",
                type=InvalidRequest.code,
                non_retryable=True,
            )
        return await super().handle_update_handler(input)


def _facts(name: str, arguments: Any) -> dict[str, object]:
    return {"message_name": name, "argument_count": len(arguments)}
