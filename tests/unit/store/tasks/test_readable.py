"""Every value that a program gives is refused at the door, or every reader reads it back."""

import json

import msgspec
from msgspec import Raw

from mitosis.contracts.json_depth import MAX_DEPTH
from mitosis.contracts.wire import Outcome, TaskReport
from mitosis.store.tasks.readable import readable, storable
from tests.support.odd_values import nested


def test_what_cannot_be_read_is_named_with_its_size_and_the_way_to_it() -> None:
    text = json.dumps({"result": nested("[", 300), "stdout": "x"})
    why = f"is nested deeper than {MAX_DEPTH} levels, more than every reader can read back"
    assert readable(text, "detail FROM task_result WHERE task_id = 7") == {
        "stdout": "x",
        "unreadable": {
            "members": ["result"],
            "why": f"result {why}",
            "bytes": len(text),
            "read_it_with": "SELECT detail FROM task_result WHERE task_id = 7",
        },
    }
    for bad in ("[" * 3000, "1", '"\\ud800"', "[1]", '{"a":1'):
        assert "unreadable" in readable(bad, "x")
    assert readable(None, "x") is None


def test_a_failed_report_keeps_its_kind() -> None:
    bad = Raw(b'{"result":"\\ud800"}')
    sent = TaskReport(
        task_id=1, attempt=1, outcome=Outcome.FAILED, kind="exit_code", exit_code=3, detail=bad
    )
    assert storable(sent).kind == "exit_code"
    ok = msgspec.structs.replace(sent, outcome=Outcome.SUCCEEDED, kind=None)
    assert storable(ok).kind == "result_not_storable"
