from typing import Any

from mitosis.jobs.drawing import text_graph
from mitosis.jobs.reading import definition_of

STEPS: dict[str, Any] = {
    "prepare": {"command": ["x"]},
    "measure": {"command": ["x"], "after": "prepare", "count": 200},
    "check": {"handler": "m:f", "after": {"measure": "each"}},
    "merge": {"handler": "m:f", "after": ["measure", "prepare"]},
    "publish": {"named_task": "a/b@1", "after": "merge", "when": "params.publish"},
    "clean": {"command": ["x"], "after": {"measure": "always", "publish": "always"}},
    "apart": {"command": ["x"], "over": "params.files"},
}
PARAMETERS = {"publish": {"type": "boolean"}, "files": {"type": "list"}}
TREE = """\
pipeline
├─ apart  one per params.files  [command]
└─ prepare  [command]
   └─ measure  200 tasks  [command]
      ├─ check  as many  [handler]  after measure: each
      └─ merge  [handler]  after measure, prepare
         └─ publish  [service]  when params.publish
            └─ clean  [command]  after measure: always, publish: always"""


def test_the_tree_has_each_step_below_the_last_one_before_it() -> None:
    job = definition_of({"name": "pipeline", "parameters": PARAMETERS, "steps": STEPS})
    assert text_graph(job) == TREE


def test_a_long_chain_is_drawn() -> None:
    steps = {f"s{n}": {"command": ["x"], "after": [f"s{n - 1}"] if n else []} for n in range(1000)}
    assert len(text_graph(definition_of({"name": "j", "steps": steps})).splitlines()) == 1001
