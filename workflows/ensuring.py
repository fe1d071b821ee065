"""Calls activities that ensure a goal in the store, with as few events in the history as possible.

A local activity costs one event and takes part in the workflow task that starts it. It gets one attempt of a
few seconds. If PostgreSQL does not answer, an activity follows: its retries are not in the history, so an
outage of any length costs the same few events. Workflow code: deterministic, no I/O.
"""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError, CancelledError, FailureError

from workflows.options import in_workflow_task, with_database

S = TypeVar("S")
A = TypeVar("A")
T = TypeVar("T")

QUIET_HISTORY = "quiet-history"
"""Id of a patch, stored in histories: local activities, backoff by step without times, verbs in a queue,
continue-as-new by messages and events. ``workflows/earlier.py`` has what runs without it do."""


def quiet() -> bool:
    """Return whether this run writes as few events as it can; a run of an earlier version does not."""
    return workflow.patched(QUIET_HISTORY)


async def ensure(method: Callable[[S, A], Awaitable[T]], argument: A, summary: str) -> T:
    """Call an activity method with one argument."""
    return await _ensure(method, [argument], summary)


async def ensure_all(method: Callable[[S], Awaitable[T]], summary: str) -> T:
    """Call an activity method without arguments."""
    return await _ensure(method, [], summary)


async def _ensure(method: Callable[..., Awaitable[T]], arguments: list[Any], summary: str) -> T:
    if quiet():
        try:
            return await workflow.execute_local_activity_method(
                method, args=arguments, **in_workflow_task(summary)
            )
        except FailureError as error:
            # After a replay the failure of a local activity comes without its ActivityError.
            cause = error.cause if isinstance(error, ActivityError) else error
            final = isinstance(cause, ApplicationError) and cause.non_retryable
            if final or isinstance(cause, CancelledError):
                raise
    return await workflow.execute_activity_method(method, args=arguments, **with_database(summary))
