"""Rules that every lifecycle table keeps, and the state sets that were decided."""

import ast
import inspect
from enum import StrEnum
from typing import Any

import pytest

from mitosis.contracts import lifecycle
from mitosis.contracts.errors import InvalidTransition
from mitosis.contracts.lifecycle import (
    ALL,
    LEASE,
    TASK,
    TASK_GROUP,
    Lifecycle,
    ManagerState,
    TaskGroupEvent,
    TaskGroupResult,
    TaskGroupState,
    TaskState,
)
from tests.support.sources import parsed_text

Life = Lifecycle[Any, Any]
LIVES = pytest.mark.parametrize("life", ALL, ids=lambda life: life.name)
# Where each life ends. A manager's never does; an environment that is gone may be made again.
ENDS: dict[str, set[str]] = {
    "task group": {"complete", "cancelled"},
    "task": {"succeeded", "failed", "cancelled"},
    "manager": set(),
    "lease": {"ended"},
    "environment": {"gone"},
    "hook run": {"succeeded", "failed"},
    "worker process": {"exited"},
    "run": {"success", "failed", "cancelled"},
    "step": {"succeeded", "failed", "skipped", "cancelled"},
}


def all_events(life: Life) -> set[StrEnum]:
    kind: type[StrEnum] = type(next(iter(life.table))[1])
    return set(kind)


def reachable(life: Life, start: str) -> set[str]:
    found, todo = {start}, [start]
    while todo:
        state = todo.pop()
        for (source, _), target in life.table.items():
            if source == state and target not in found:
                found.add(target)
                todo.append(target)
    return found


@LIVES
def test_every_state_can_be_reached(life: Life) -> None:
    # A task that depends on others is blocked from the start; that is no event.
    blocked = {TaskState.BLOCKED} & set(life.states)
    assert reachable(life, life.initial) | blocked == set(life.states)


@LIVES
def test_every_state_leads_to_an_end(life: Life) -> None:
    assert life.terminal <= ENDS[life.name]
    for state in life.states if ENDS[life.name] else ():
        assert reachable(life, state) & ENDS[life.name], state


@LIVES
def test_every_event_is_used(life: Life) -> None:
    assert {event for _, event in life.table} == all_events(life)


@LIVES
def test_an_event_that_is_not_allowed_says_which_are(life: Life) -> None:
    for state in life.states:
        for event in all_events(life) - set(life.events(state)):
            with pytest.raises(InvalidTransition) as caught:
                life.after(state, event)
            assert caught.value.facts["allowed"] == [str(e) for e in life.events(state)]


@LIVES
def test_sources_are_the_states_that_allow_an_event(life: Life) -> None:
    for event in {event for _, event in life.table}:
        assert {s for s in life.states if event in life.events(s)} == set(life.sources(event))


@LIVES
def test_the_diagram_has_every_edge(life: Life) -> None:
    lines = life.mermaid().splitlines()
    assert len(lines) == 2 + len(life.table) + len(life.terminal)
    for (source, event), target in life.table.items():
        assert f"    {source} --> {target}: {event}" in lines


@LIVES
def test_every_state_says_what_it_means(life: Life) -> None:
    (body,) = parsed_text(inspect.getsource(type(life.initial))).body
    assert isinstance(body, ast.ClassDef)
    members = [node for node in body.body if isinstance(node, ast.Assign)]
    texts = [node for node in body.body if isinstance(node, ast.Expr)]
    assert len(texts) >= len(members) == len(life.states)


@pytest.mark.spec("C-06", "S000-104")
def test_the_states_and_results_of_a_group() -> None:
    assert {*TaskGroupState} == {"open", "closed", "complete", "cancelled"}
    assert {*TaskGroupResult} == {
        *("success", "tasks_failed", "setup_failed", "teardown_degraded", "cancelled")
    }


def test_only_a_closed_group_reopens() -> None:
    assert TASK_GROUP.sources(TaskGroupEvent.REOPEN) == (TaskGroupState.CLOSED,)


@pytest.mark.spec("S000-104")
def test_the_states_of_a_manager() -> None:
    assert [*ManagerState] == ["idle", "preparing", "executing", "cleanup", "draining", "offline"]


@pytest.mark.spec("S000-104")
def test_the_states_of_a_worker() -> None:
    known = {"idle", "executing", "crashed"}
    assert {*lifecycle.WorkerState} == known | {"starting", "stopping", "exited"}


def test_a_late_report_counts_for_a_task_that_went_back() -> None:
    """Protocol P2: a ready task may succeed or fail, as long as nobody has claimed it again."""
    assert TASK.after(lifecycle.TaskState.READY, lifecycle.TaskEvent.SUCCEED) == "succeeded"
    assert TASK.after(lifecycle.TaskState.READY, lifecycle.TaskEvent.FAIL) == "failed"


def test_a_lease_that_is_only_offered_cannot_be_lost() -> None:
    """It holds no task: it is withdrawn."""
    assert lifecycle.LeaseState.OFFERED not in LEASE.sources(lifecycle.LeaseEvent.LOSE)
