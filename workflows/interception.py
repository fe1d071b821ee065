"""Counts the messages of a workflow, and keeps a wrong one from blocking it permanently.

A handler that is called with too many arguments raises TypeError, and Temporal then retries the workflow
task without end, before every later message (measured). Our handlers have at most one argument,
so more than one is an error of the sender: signals are dropped, which the current details say, updates are
refused.
"""

from typing import Any, Protocol

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

ONE_ARGUMENT = "it takes one argument, an object, or none"


class OneArgument(Interceptor):
    """Worker interceptor of the control worker."""

    def workflow_interceptor_class(
        self,
        input: WorkflowInterceptorClassInput,  # noqa: A002 the SDK's name
    ) -> type[WorkflowInboundInterceptor]:
        return _Inbound


class CountsMessages(Protocol):
    """What the interceptor needs of a workflow."""

    def message_received(self) -> None:
        """Count a signal or an update."""
        ...

    def message_refused(self, message: str, reason: str) -> None:
        """Say that a signal had no effect."""
        ...


class _Inbound(WorkflowInboundInterceptor):
    async def handle_signal(self, input: HandleSignalInput) -> None:  # noqa: A002
        receiver: CountsMessages = workflow.instance()
        receiver.message_received()
        if input.signal == POKE:
            input.args = ()  # a poke carries no information
        known = workflow.get_signal_handler(input.signal) is not None
        if known and len(input.args) > 1:
            receiver.message_refused(f"signal {input.signal}", ONE_ARGUMENT)
            return
        await super().handle_signal(input)

    def handle_update_validator(self, input: HandleUpdateInput) -> None:  # noqa: A002
        _check_arguments(input)
        super().handle_update_validator(input)

    async def handle_update_handler(self, input: HandleUpdateInput) -> Any:  # noqa: A002
        receiver: CountsMessages = workflow.instance()
        receiver.message_received()
        _check_arguments(input)
        return await super().handle_update_handler(input)


def _check_arguments(update: HandleUpdateInput) -> None:
    if len(update.args) > 1:
        raise ApplicationError(
            f"{update.update}: {ONE_ARGUMENT}", type=InvalidRequest.code, non_retryable=True
        )
