"""Trying again is written in one place: no other module doubles a pause, rolls dice or reads Retry-After."""

import ast
from collections.abc import Iterator

import pytest

from tests.architecture.test_source_layout import MODULES, named
from tests.support.sources import parsed_text

POLICY = "mitosis/retry_policy.py"
REPLAYED = "workflows/"
"""Workflows compute their own pauses; their module that is no workflow is not exempt."""
NOT_REPLAYED = ("workflows/control.py", "workflows/relay.py", "workflows/bootstrap.py")
DRAWS_WORKLOADS = "mitosis/scheduling/simulation/"
"""Simulated fleets: chance is what they are made of, and they repeat nothing."""
WRITES_RETRY_AFTER = ("api/", "mitosis/store/", "mitosis/client/problems.py")
"""What answers with it, and what puts the header among the facts of an error."""

CHECKED = [
    path
    for path in MODULES
    if named(path) != POLICY
    and not named(path).startswith(DRAWS_WORKLOADS)
    and (not named(path).startswith(REPLAYED) or named(path) in NOT_REPLAYED)
]


def grows(node: ast.AST) -> bool:
    """Is this ``2 ** failures``, or ``pause * 2``?"""
    if isinstance(node, ast.AugAssign):
        return isinstance(node.op, ast.Mult) and is_two(node.value)
    if not isinstance(node, ast.BinOp):
        return False
    if isinstance(node.op, ast.Pow):
        return is_two(node.left) and not isinstance(node.right, ast.Constant)
    doubled = isinstance(node.op, ast.Mult) and (is_two(node.left) or is_two(node.right))
    return doubled and not named_like_a_constant(node)


def named_like_a_constant(node: ast.BinOp) -> bool:
    return any(isinstance(side, ast.Name) and side.id.isupper() for side in (node.left, node.right))


def is_two(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value == 2


def is_random(node: ast.AST) -> bool:
    match node:
        case ast.Import(names=names):
            return any(name.name == "random" for name in names)
        case ast.ImportFrom(module="random"):
            return True
    return False


def reads_retry_after(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value == "retry_after_seconds"


def offences(text: str, name: str) -> Iterator[str]:
    for node in ast.walk(parsed_text(text)):
        if grows(node):
            yield f"line {node.lineno}: a pause that doubles"  # type: ignore[attr-defined]
        if is_random(node):
            yield f"line {node.lineno}: random"  # type: ignore[attr-defined]
        if reads_retry_after(node) and not name.startswith(WRITES_RETRY_AFTER):
            yield f"line {node.lineno}: Retry-After"  # type: ignore[attr-defined]


def test_only_the_policy_decides_when_to_try_again() -> None:
    assert len(CHECKED) > 100
    found = {named(path): list(offences(path.read_text(), named(path))) for path in CHECKED}
    assert {name: lines for name, lines in found.items() if lines} == {}


@pytest.mark.parametrize(
    "line",
    [
        "pause = min(pause * 2, 10.0)",
        "pause *= 2",
        "await asyncio.sleep(0.1 * 2**failures)",
        "import random",
        "from random import uniform",
        'asked = error.facts.get("retry_after_seconds")',
    ],
)
def test_a_second_policy_is_noticed(line: str) -> None:
    assert list(offences(f"async def again():\n    {line}", "mitosis/client/again.py"))
