"""Keeps the memo of a workflow at the present names, for the lists of Temporal's own tools.

Workflow code: deterministic, no I/O. The static summary names what a workflow was called when it was started.
"""

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from mitosis.contracts.control import Names

SHOWN_NAMES = "shown-names"
"""Id of a patch, stored in histories: the workflow writes its memo after a rename, or if it has none."""


def show_names(names: Names) -> None:
    """Write the memo unless it has these names."""
    memo = names.memo
    shown = workflow.memo()
    if any(shown.get(key) != name for key, name in memo.items()) and workflow.patched(SHOWN_NAMES):
        workflow.upsert_memo(memo)
