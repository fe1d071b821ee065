"""Which error a failure was, and which workflow a poke goes to."""

from uuid import UUID

import pytest
from temporalio.exceptions import (
    ActivityError,
    ApplicationError,
    RetryState,
)

from mitosis.contracts.errors import InvalidTransition, NotFound, TemporalUnavailable
from workflows.client import TemporalAddress, from_failure, target

GROUP, OTHER, HOST = UUID(int=1), UUID(int=2), UUID(int=3)


def failed(cause: BaseException) -> ActivityError:
    error = ActivityError(
        "activity failed",
        scheduled_event_id=1,
        started_event_id=2,
        identity="host",
        activity_type="run_lease",
        activity_id="1",
        retry_state=RetryState.MAXIMUM_ATTEMPTS_REACHED,
    )
    error.__cause__ = cause
    return error


def test_failures_become_the_errors_they_were() -> None:
    refused = InvalidTransition(
        subject="task group", state="open", event="reopen", allowed=["close"]
    )
    wire = ApplicationError(refused.message, refused.facts, type=refused.code)
    for cause in (wire, failed(wire)):
        error = from_failure(cause)
        assert isinstance(error, InvalidTransition)
        assert (error.message, error.facts) == (refused.message, refused.facts)
    assert isinstance(from_failure(ApplicationError("no", type="not_found")), NotFound)
    assert isinstance(
        from_failure(ApplicationError("?", type="SomethingElse")), TemporalUnavailable
    )
    assert isinstance(from_failure(None), TemporalUnavailable)


def test_every_target_has_its_own_id_and_the_scheduler_needs_none() -> None:
    assert target("scheduler").id == "scheduler"
    assert target("task_group", GROUP).id == f"task-group/{GROUP}"
    assert target("manager", HOST).id == f"manager/{HOST}"
    with pytest.raises(ValueError, match="needs an id"):
        target("manager")


def test_api_key_is_never_shown() -> None:
    assert "secret" not in repr(TemporalAddress("somewhere:7233", api_key="secret"))
