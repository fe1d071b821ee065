"""Facts that two modules once decided each for itself, and the one module that owns each now."""

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from tests.support.sources import parsed

ROOT = Path(__file__).resolve().parent.parent.parent
PACKAGES = ("mitosis", "workflows", "activities", "manager_agent", "api")


@cache
def trees() -> Mapping[str, ast.Module]:
    """Every module by its path, parsed by the one worker of xdist that runs these tests."""
    return {
        str(path.relative_to(ROOT)): parsed(path)
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
    }


def texts(tree: ast.AST) -> Iterator[str]:
    """Every constant text of a module, also the parts of formatted ones."""
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(text)):
                yield text


def test_the_prefix_of_settings_is_written_once() -> None:
    owners = [path for path, tree in trees().items() if "MITOSIS_" in texts(tree)]
    assert owners == ["mitosis/contracts/variables.py"]


def test_the_state_of_a_process_is_parsed_once() -> None:
    """By the worker, which has no psutil and walks all processes when it kills; others ask psutil."""
    owners = [
        path
        for path, tree in trees().items()
        if any(text == "stat" or text.endswith("/stat") for text in texts(tree))
    ]
    assert owners == ["mitosis/worker/process_tree.py"]


def test_an_attempt_has_one_key() -> None:
    """And one form on HTTP, where it is an object; with the public id one for each kind of body."""
    owners = [
        f"{path}:{node.name}"
        for path, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and _fields(node) == ["task_id", "attempt"]
    ]
    assert owners == [
        "mitosis/contracts/attempt.py:AttemptKey",
        "mitosis/contracts/service_tasks.py:HeldAttempt",
        "mitosis/contracts/wire.py:TaskAttempt",
        "mitosis/contracts/worker_services.py:HeldTask",
    ]


def test_a_stop_is_counted_once() -> None:
    """The grace of a task, of which the shortest counts: for commands and for handlers alike."""
    owners = [
        path
        for path, tree in trees().items()
        if path.startswith("mitosis/worker/")
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and _fields(node)[:2] == ["kind", "message"]
    ]
    assert owners == ["mitosis/worker/report.py", "mitosis/worker/stopping.py"]


def _fields(node: ast.ClassDef) -> list[str]:
    return [
        line.target.id
        for line in node.body
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name)
    ]
