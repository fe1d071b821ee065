"""Jobs in Python as definitions: workers find their functions where this program finds them."""

import json
from typing import Any

from mitosis.client.job_calls import fields_of
from mitosis.client.program import search_path
from mitosis.jobs.building import Job


def job(**groups: Any) -> Job:
    made = Job("etl", groups=groups)
    made.command("a", ["true"])
    for name in ("plain", *groups):
        group = {} if name == "plain" else {"group": name}
        made._add(name, {"handler": "json:dumps", **group})
    return made


def paths(fields: dict[str, Any]) -> dict[str, Any]:
    return {
        name: group.get("plan", {}).get("python_path") for name, group in fields["groups"].items()
    }


def test_workers_that_run_functions_look_where_this_program_does() -> None:
    made = job(
        own={"plan": {"python_path": ["/srv"], "worker_count": 2}},
        open={"plan": {"worker_count": 2}},
        shared={"standing": "team/pool"},
    )
    here = list(search_path())  # of now: other tests may change the folder
    assert paths(fields_of(made, search_here=True)) == {
        "main": here,
        "own": ["/srv"],
        "open": here,
        "shared": None,
    }
    assert paths(fields_of(made)) == {"own": ["/srv"], "open": None, "shared": None}


def test_commands_need_no_folders() -> None:
    made = Job("etl")
    made.command("a", ["true"])
    assert fields_of(made, search_here=True) == fields_of(made)


def test_a_definition_in_fields_is_left_as_it_is() -> None:
    fields = {"name": "etl", "steps": {"a": {"handler": "json:dumps"}}}
    assert json.dumps(fields_of(fields, search_here=True)) == json.dumps(fields)
