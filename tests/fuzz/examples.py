"""Bodies that succeed, by operation: random members are laid over them. ``{n}`` is a number of its own."""

from typing import Any

STEPS = {"one": {"command": ["true"]}}
TASK = {"command": ["true"], "environment": {"A": "b"}}
HOOK = {"command": ["true"], "environment": {"A": "b"}}
GROUP = "/api/v1/task-groups"
HOST = "/api/v1/managers/{manager_id}"
SCHEDULE = "/api/v1/schedules/{reference}"
BODIES: dict[str, dict[str, Any]] = {
    "POST /api/v1/login": {"username": "reader", "password": "secret words"},
    f"POST {GROUP}": {
        "name": "made-{n}",
        "tags": ["no-host"],
        "environment_setup_hook": HOOK,
        "worker_allocation_plan": {"worker_count": 1},
    },
    f"POST {GROUP}/plan": {"group": {"name": "made-{n}"}, "tasks": 3},
    f"PUT {GROUP}/{{reference}}": {"priority": 1},
    f"PUT {GROUP}/{{reference}}/tags": {"tags": ["no-host"]},
    f"POST {GROUP}/{{reference}}/tasks": {"tasks": [TASK, TASK]},
    f"POST {GROUP}/{{reference}}/retry": {"idempotency_key": "key-{n}"},
    f"POST {GROUP}/{{reference}}/cancel-tasks": {"filter": {"min_priority": 5}},
    f"POST {GROUP}/{{reference}}/managers": {"manager_ids": []},
    f"DELETE {GROUP}/{{reference}}/managers": {"manager_ids": []},
    "POST /api/v1/task-group-templates": {"name": "made-{n}", "template": {"priority": 1}},
    "POST /api/v1/task-group-templates/{reference}/create": {"name": "from-{n}"},
    "POST /api/v1/jobs": {"definition": {"name": "job-{n}", "steps": STEPS}},
    "POST /api/v1/runs": {"definition": {"name": "job-{n}", "steps": STEPS}},
    "POST /api/v1/runs/{run_id}/rerun": {},
    "POST /api/v1/schedules": {"job": "any", "name": "made-{n}", "cron": "@daily"},
    f"POST {SCHEDULE}/backfill": {"first": "2026-01-01T00:00Z", "last": "2026-01-02T00:00Z"},
    f"POST {SCHEDULE}/trigger": {},
    f"PATCH {SCHEDULE}": {"cron": "@hourly"},
    "POST /api/v1/managers": {"name": "host-of-{n}"},
    f"PUT {HOST}": {"name": "renamed-{n}"},
    "POST /api/v1/users": {"username": "user-{n}"},
    "PUT /api/v1/users/{username}/password": {"password": "secret words"},
    "PUT /api/v1/user-groups/{group_name}/retention": {"keep": None},
    "POST /api/v1/tokens/revoke": {"worker_id": "any"},
    "POST /api/v1/workers": {
        "worker_id": "made-{n}",
        "groups": ["ann"],
        "supported_tasks": [{"namespace": "n", "name": "t", "version": "1"}],
    },
    "POST /api/v1/workers/heartbeat": {"incarnation": 1},
    "POST /api/v1/workers/goodbye": {"incarnation": 1},
    "POST /api/v1/workers/claim": {
        "incarnation": 1,
        "claim_seq": 1,
        "acked_seq": 0,
        "max_tasks": 1,
    },
    "POST /api/v1/workers/progress": {"incarnation": 1, "progress": []},
    "POST /api/v1/workers/report": {"incarnation": 1, "reports": []},
    "POST /api/v1/managers/tasks/claim": {
        "epoch": 1,
        "claim_seq": 2,
        "acked_seq": 1,
        "max_tasks": 1,
    },
    "POST /api/v1/managers/tasks/report": {
        "epoch": 1,
        "reports": [{"task_id": 1, "attempt": 1, "outcome": "succeeded"}],
    },
    "POST /api/v1/managers/heartbeat": {"incarnation": 1, "epoch": 1},
    "POST /api/v1/managers/environments/{task_group_id}": {"event": "tear_down", "epoch": 1},
}
