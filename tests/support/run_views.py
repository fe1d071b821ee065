"""Views of runs as the API answers them, with what a test says of them."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from mitosis.contracts.runs import RunView, StepInfo

NOON = datetime(2026, 11, 28, 12, tzinfo=UTC)


def step(name: str, state: str = "waiting", **facts: Any) -> StepInfo:
    """A step; ``after`` may be a list of names."""
    after = facts.pop("after", {})
    if isinstance(after, list):
        after = dict.fromkeys(after, "success")
    known = {"layer": 0, "executor": "command", "group": "main", **facts}
    return StepInfo.model_validate({"name": name, "state": state, "after": after, **known})


def run_view(*steps: StepInfo, **facts: Any) -> RunView:
    """A running run of these steps, begun at noon."""
    known = {
        "run_id": UUID(int=7),
        "state": "running",
        "revision": 1,
        "job_name": "pipeline",
        "version": 3,
        "group_name": "ann",
        "created_by": "ann",
        "created_at": NOON,
        "started_at": NOON,
        "parameters": {},
        "steps_total": len(steps),
        "steps_ended": sum(one.state not in ("waiting", "running") for one in steps),
        **facts,
    }
    return RunView.model_validate({**known, "steps": [one.model_dump() for one in steps]})
