"""Every statement that the product can send, found in its source: none has to be listed by hand.

Three things are read: the argument of each call that executes a statement, whatever else a module that
executes statements holds (constants, tables of constants, ``SQL["name"]``), and what functions compose.
"""

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from itertools import chain, combinations, product
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from mitosis.store.groups import views as groups
from mitosis.store.managers import views as managers
from mitosis.store.pg.compose import Composed
from mitosis.store.pg.statements import load
from mitosis.store.runs import advance, turns
from mitosis.store.runs.rows import TURN

ROOT = Path(__file__).parents[2]
SOURCES = ("mitosis", "api", "workflows", "activities", "manager_agent")
EXECUTING = {"execute": 0, "executemany": 0, "fetch_one": 2, "fetch_all": 2, "fetch_facts": 2}
EXECUTING["fetch_composed"] = 2
"""Functions, and the position of their statement."""
_VERB = re.compile(r"(?:SELECT|WITH|INSERT|UPDATE|DELETE|MERGE|TABLE|VALUES)\b", re.IGNORECASE)
_COMMENT = re.compile(r"/\*.*?\*/|--[^\n]*", re.DOTALL)
_PLACE = re.compile(r"\$\w+\$|\{\w+\}")
STORE = ROOT / "mitosis/store"
"""The folder of the ``.sql`` files."""


class Found(NamedTuple):
    """A statement, and where it is from: ``folder/name.sql name`` or ``module:line``."""

    name: str
    text: str


def _group_pages() -> Iterator[Composed]:
    """Every combination of filters."""
    limits = sorted(groups._LIMITS)
    subsets = chain.from_iterable(combinations(limits, size) for size in range(len(limits) + 1))
    for names, settled, everything in product(subsets, (None, True, False), (True, False)):
        yield groups.ids_of_page(settled, frozenset(names), everything=everything)


COMPOSED: Mapping[str, Any] = {
    "mitosis.store.groups.views.ids_of_page": _group_pages,
    "mitosis.store.managers.views._ids_of_page": lambda: [
        managers._ids_of_page(is_first=first) for first in (True, False)
    ],
    "mitosis.store.runs.advance._begin": lambda: [advance.SQL["is_turn"].replace("$turn$", TURN)],
    "mitosis.store.runs.turns.add_due": lambda: [turns.SQL["due_runs"].replace("$due$", turns.DUE)],
}
"""Functions that compose statements when they are called: all that they can compose."""
PARTS = {
    "mitosis.store.groups.views._ids_by_state",
    "mitosis.store.groups.views._newest_of_each",
    "mitosis.store.leases.fleet.groups_statement",
    "mitosis.store.leases.fleet.hosts_statement",
    "mitosis.store.leases.fleet.with_failures",
    "mitosis.store.leases.switching.switching_of",
    "mitosis.store.registry.health.with_health",
    "mitosis.store.runs.views._filled",
    "mitosis.store.runs.views._runs",
    "mitosis.store.schedules.schedules._filled",
    "mitosis.store.tasks.report._of",
}
"""Functions that compose for constants, or for one of those above."""


@cache
def all_statements() -> tuple[Found, ...]:
    """Return every complete statement once; parts of others are left out."""
    found: dict[str, str] = {}
    for module, tree in _executing_modules():
        for where, text in (*_sent(module, tree), *_held(module, tree)):
            found.setdefault(text, _name_of(text) or where)
    for function, composed in COMPOSED.items():
        for number, one in enumerate(composed()):
            found.setdefault(_text(one) or "", f"{function} {number}")
    bodies: dict[Found, str] = {}
    for text, name in found.items():
        if _is_whole(text) and _bare(text) not in bodies.values():
            bodies[Found(name, text)] = _bare(text)
    joined = "\n;\n".join(bodies.values())
    return tuple(one for one, body in bodies.items() if joined.count(body) == 1)


def forgotten() -> list[str]:
    """Return the names in ``.sql`` files that are in no statement of :func:`all_statements`."""
    texts = "\n;\n".join(_bare(one.text) for one in all_statements())
    return [
        f"{file} {name}"
        for path in sorted(STORE.rglob("*.sql"))
        for file in [str(path.relative_to(STORE))]
        for name, text in load(file).items()
        if _VERB.match(_bare(text))
        if not all(part.strip() in texts for part in _PLACE.split(_bare(text)))
    ]


def composing() -> set[str]:
    """Return the functions that call ``compose`` or fill a place of a statement."""
    return {
        f"{module.__name__}.{function.name}"
        for module, tree in _executing_modules()
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        if any(_composes(node) for node in ast.walk(function))
    }


def _composes(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    if isinstance(node.func, ast.Name):
        return node.func.id == "compose"
    first = node.args[0] if node.args else None
    place = isinstance(first, ast.Constant) and bool(_PLACE.fullmatch(str(first.value)))
    return place and isinstance(node.func, ast.Attribute) and node.func.attr == "replace"


@cache
def _executing_modules() -> tuple[tuple[ModuleType, ast.Module], ...]:
    found = []
    for path in sorted(path for root in SOURCES for path in (ROOT / root).rglob("*.py")):
        text = path.read_text()
        if (
            any(f"{name}(" in text for name in EXECUTING)
            or "compose" in text
            or '.replace("$' in text
        ):
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            found.append((import_module(name.removesuffix(".__init__")), ast.parse(text)))
    return tuple(found)


def _sent(module: ModuleType, tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield the statements that are arguments of calls which execute them."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = getattr(node.func, "attr", getattr(node.func, "id", None))
            position = EXECUTING.get(name or "", len(node.args))
            if position < len(node.args) and (text := _text(_value(module, node.args[position]))):
                yield f"{module.__name__}:{node.lineno}", text


def _held(module: ModuleType, tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield the statements in constants of a module, and the items of tables that it names."""
    if not module.__name__.startswith("mitosis.store."):
        return
    for name in vars(module).keys() - {"SQL"}:  # of its statements only those that it names
        for text in _texts(vars(module)[name]):
            yield f"{module.__name__}.{name}", text
    tables = [value for value in vars(module).values() if _is_table(value)]
    for node in ast.walk(tree):
        where = f"{module.__name__}:{getattr(node, 'lineno', 0)}"
        if isinstance(node, ast.Subscript) and (read := _text(_value(module, node))):
            yield where, read
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            named = (table.get(node.value) for table in tables)
            yield from ((where, one) for one in named if one)


def _is_table(value: Any) -> bool:
    return isinstance(value, Mapping) and bool(value) and all(map(_text, value.values()))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, Composed) or _text(value):
        yield _text(value) or ""
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _texts(item)


def _value(module: ModuleType, node: ast.expr) -> Any:
    """Evaluate an expression of constants of the module; None if it needs more."""
    try:
        code = compile(ast.Expression(node), module.__name__, "eval")
        return eval(code, vars(module))  # noqa: S307 - an expression of our own source
    except Exception:  # noqa: BLE001 - it names what exists in a call only
        return None


def _text(value: Any) -> str | None:
    text = value.sql if isinstance(value, Composed) else value
    return text if isinstance(text, str) and _VERB.match(_bare(text)) else None


def _bare(text: str) -> str:
    """Return the text without comments."""
    return _COMMENT.sub("", text).strip()


def _is_whole(text: str) -> bool:
    return bool(_VERB.match(_bare(text))) and not _PLACE.search(_bare(text))


def _name_of(text: str) -> str | None:
    found = re.match(r"\s*/\* (\S+\.sql) (\w+) \*/", text)
    return f"{found[1]} {found[2]}" if found else None
