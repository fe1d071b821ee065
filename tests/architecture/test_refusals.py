"""No code reads the English texts of msgspec or pydantic: a new wording of theirs changes nothing here.

What is wrong comes from types and contexts of errors (``contracts/checked_model.py``) or from a walk over
value and type (``contracts/mismatch.py``).
"""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.support.sources import parsed

ROOT = Path(__file__).resolve().parent.parent.parent
CODE = ("mitosis", "api", "manager_agent", "activities", "workflows")
THEIRS = {"ValidationError", "DecodeError", "MsgspecError", "RequestValidationError"}
WORDING = ("Input should", "Value error", "Expected `", "Object contains", "Object missing")


def names_of_their_errors(function: ast.AST) -> set[str]:
    """Variables that hold an error of theirs: caught, or a parameter."""
    found = set()
    for node in ast.walk(function):
        if isinstance(node, ast.ExceptHandler) and node.name and _classes(node.type) & THEIRS:
            found.add(node.name)
        elif isinstance(node, ast.arg) and _classes(node.annotation) & (THEIRS | {"ErrorDetails"}):
            found.add(node.arg)
    return found


def _classes(node: ast.AST | None) -> set[str]:
    """The last names of the classes that an annotation or a handler lists."""
    return {
        one.attr if isinstance(one, ast.Attribute) else one.id
        for one in (ast.walk(node) if node else ())
        if isinstance(one, ast.Attribute | ast.Name)
    }


def _is_text_of(node: ast.AST, names: set[str]) -> bool:
    """``str(error)``, ``f"{error}"``, ``error.args[0]``, ``….errors()[0]["msg"]``."""
    match node:
        case ast.Call(func=ast.Name(id="str" | "repr"), args=[inner]):
            return _is_text_of(inner, names) or (isinstance(inner, ast.Name) and inner.id in names)
        case ast.Subscript(slice=ast.Constant(value="msg")):
            return True
        case ast.Subscript(value=ast.Attribute(value=ast.Name(id=name), attr="args")):
            return name in names
        case ast.JoinedStr(values=values):
            return any(
                isinstance(one, ast.FormattedValue)
                and isinstance(one.value, ast.Name)
                and one.value.id in names
                for one in values
            )
    return False


def readings(module: ast.Module) -> Iterator[int]:
    """Lines where such a text is compared, searched, cut or replaced."""
    names = names_of_their_errors(module)
    for node in ast.walk(module):
        match node:
            case ast.Call(func=ast.Attribute(value=inner), args=args, lineno=line):
                read = _is_text_of(inner, names) or any(
                    _is_text_of(one, names) and _is_regex(node.func) for one in args
                )
            case ast.Compare(left=left, comparators=others, lineno=line):
                read = any(_is_text_of(one, names) for one in (left, *others))
            case _:
                continue
        if read:
            yield line


def _is_regex(function: ast.expr) -> bool:
    searches = {"match", "fullmatch", "search", "sub", "split", "findall", "finditer"}
    return isinstance(function, ast.Attribute) and function.attr in searches


def test_no_text_of_msgspec_or_pydantic_is_read() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for package in CODE
        for path in (ROOT / package).rglob("*.py")
        for line in readings(parsed(path))
    ]
    assert not found, f"read the type and the context of the error instead: {found}"


def test_no_wording_of_theirs_stands_in_our_code() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {word}"
        for package in CODE
        for path in (ROOT / package).rglob("*.py")
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        for word in WORDING
        if word in node.value
    ]
    assert not found, found
