"""Write docs/reference/lifecycles.md from the lifecycle tables; ``--check`` only compares."""

import inspect
import sys
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from mitosis.contracts.lifecycle import ALL, Lifecycle, TaskGroupResult  # noqa: E402 - after the path
from tools.pages import markdown, member_texts, run_generator, table  # noqa: E402

PAGE = ROOT / "docs/reference/lifecycles.md"
HEAD = """\
# Lifecycles

Generated from `mitosis/contracts/lifecycle.py` by `make docs`; do not edit.

Every lifecycle is one table of states and events. The workflows, the SQL, the API and the command line read
these tables; an event that a state does not list is refused with `invalid_transition`, and the error names
the events that are allowed.
"""


def page() -> str:
    """The whole document."""
    return "\n".join([HEAD, *(block for one in ALL for block in _blocks(one)), _results()])


def _blocks(one: Lifecycle[Any, Any]) -> Iterator[str]:
    yield f"## {one.name.capitalize()}\n"
    if meaning := markdown(inspect.getdoc(type(one.initial))):
        yield f"{meaning}\n"
    yield f"```mermaid\n{one.mermaid()}\n```\n"
    texts = member_texts(type(one.initial))
    rows = [(f"`{state}`", _after(one, state), texts.get(state.name, "")) for state in one.states]
    yield table(("State", "Events", "Meaning"), rows)


def _after(one: Lifecycle[Any, Any], state: StrEnum) -> str:
    edges = [f"{event} → `{one.after(state, event)}`" for event in one.events(state)]
    return "; ".join(edges) or "none: it is final"


def _results() -> str:
    texts = member_texts(TaskGroupResult)
    rows = [(f"`{result}`", texts[result.name]) for result in TaskGroupResult]
    intro = "## Result of a settled task group\n\nThe first line that holds, in this order.\n\n"
    return intro + table(("Result", "Meaning"), rows)


if __name__ == "__main__":
    sys.exit(run_generator(PAGE, page()))
