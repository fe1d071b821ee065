"""Each statement that deletes an open task writes its result too, where the trigger of ADR 0014 reads it."""

import re

from tests.support.checkout import ROOT

STORE = ROOT / "mitosis" / "store"
_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_COMMENT = re.compile(r"--[^\n]*")
_ENDS = re.compile(r"\bDELETE\s+FROM\s+open_task\b", re.IGNORECASE)
_RESULT = re.compile(r"\bINSERT\s+INTO\s+task_result\b", re.IGNORECASE)


def statements() -> dict[str, str]:
    found = {}
    for path in sorted(STORE.rglob("*.sql")):
        _, *rest = _NAME.split(path.read_text())
        for name, body in zip(rest[::2], rest[1::2], strict=True):
            found[f"{path.relative_to(STORE)} {name}"] = _COMMENT.sub("", body)
    return found


def test_whatever_ends_a_task_writes_its_result_in_the_same_statement() -> None:
    ending = {name for name, text in statements().items() if _ENDS.search(text)}
    assert len(ending) >= 6, "the search finds them"
    without = {name for name in ending if not _RESULT.search(statements()[name])}
    assert without == set(), "its children would take it for cancelled"


def test_tasks_are_deleted_in_statements_of_the_store_only() -> None:
    elsewhere = [
        path.relative_to(ROOT)
        for package in ("mitosis", "api", "workflows", "activities")
        for path in sorted((ROOT / package).rglob("*.py"))
        if _ENDS.search(path.read_text()) or "delete(open_task)" in path.read_text()
    ]
    assert elsewhere == []
