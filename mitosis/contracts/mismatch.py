"""Find where a value differs from a msgspec type, by walking both.

Runs only after msgspec has refused the value, so it may be slow. It does not parse msgspec's messages,
which may change. Imports only msgspec, because workers import this.
"""

import base64
import binascii
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias
from uuid import UUID

import msgspec
from msgspec import inspect

Path: TypeAlias = tuple[str | int, ...]
_Found: TypeAlias = Iterator["Mismatch"]


@dataclass(frozen=True, slots=True)
class Mismatch:
    """One place where a value does not match its type."""

    path: Path
    """Names of fields and keys, indexes of lists; () = the whole value."""
    problem: Literal["missing", "unknown", "key", "type", "choice", "bound", "length"]
    """A required field is absent; the type has no such field; a key of a dict is not text; the value is of
    another type, is none of the choices, is out of bounds, has the wrong length."""
    expected: tuple[str, ...] = ()
    """Names of Python types, or the choices."""
    bound: str = ""
    """The violated bound, as in ``>= 1``."""
    got: Any = None


def find_mismatch(value: object, kind: Any) -> Mismatch | None:
    """Return the first mismatch, in the order of the value's own fields; None if the value fits.

    Args:
        value: builtins, as a JSON decoder or ``msgspec.to_builtins`` returns them.
        kind: a type that msgspec knows.
    """
    return next(_walk(value, inspect.type_info(kind), ()), None)


def joined_path(path: Sequence[str | int], field: str = "") -> str:
    """Write ``("tasks", 3, "command")`` as ``tasks[3].command``, below ``field``."""
    for step in path:
        field += f"[{step}]" if isinstance(step, int) else f".{step}"
    return field.strip(".")


_KINDS: dict[type[inspect.Type], tuple[str, tuple[type, ...]]] = {
    inspect.AnyType: ("object", (object,)),
    inspect.RawType: ("object", (object,)),
    inspect.NoneType: ("None", (type(None),)),
    inspect.BoolType: ("bool", (bool,)),
    inspect.IntType: ("int", (int,)),
    inspect.FloatType: ("float", (int, float)),
    inspect.StrType: ("str", (str,)),
    inspect.LiteralType: ("str", (str,)),
    inspect.EnumType: ("str", (str,)),
    inspect.BytesType: ("bytes", (str,)),
    inspect.UUIDType: ("UUID", (str,)),
    inspect.ListType: ("list", (list, tuple)),
    inspect.VarTupleType: ("list", (list, tuple)),
    inspect.DictType: ("dict", (dict,)),
    inspect.StructType: ("dict", (dict,)),
}
"""The name of each kind, and the builtins that represent it."""


def _is_a(value: Any, kind: inspect.Type) -> bool:
    """Return whether a builtin may represent this kind, ignoring its size and contents."""
    if isinstance(value, bool):  # bool is an int in Python, but not in JSON
        return isinstance(kind, inspect.BoolType | inspect.AnyType | inspect.RawType)
    return isinstance(value, _KINDS[type(kind)][1])


def _walk(value: Any, kind: inspect.Type, path: Path) -> _Found:
    if isinstance(kind, inspect.UnionType):
        yield from _walk_union(value, kind, path)
    elif not _is_a(value, kind):
        yield Mismatch(path, "type", (_KINDS[type(kind)][0],), got=value)
    elif (walk := _WALKS.get(type(kind))) is not None:
        yield from walk(value, kind, path)


def _walk_union(value: Any, kind: inspect.UnionType, path: Path) -> _Found:
    """Descend into the union's member for the type of the value; msgspec allows one of each at most."""
    for member in kind.types:
        if _is_a(value, member):
            yield from _walk(value, member, path)
            return
    yield Mismatch(path, "type", tuple(_KINDS[type(one)][0] for one in kind.types), got=value)


def _walk_struct(value: dict[str, Any], kind: inspect.StructType, path: Path) -> _Found:
    known = {field.encode_name: field for field in kind.fields}
    for name, item in value.items():
        if name in known:
            yield from _walk(item, known[name].type, (*path, name))
        elif kind.forbid_unknown_fields:
            yield Mismatch((*path, str(name)), "unknown")
    for name, field in known.items():
        if field.required and name not in value:
            yield Mismatch((*path, name), "missing")


def _walk_dict(value: dict[Any, Any], kind: inspect.DictType, path: Path) -> _Found:
    for key, item in value.items():
        if not isinstance(key, str):
            yield Mismatch(path, "key", ("str",), got=key)
        yield from _walk(item, kind.value_type, (*path, str(key)))


def _walk_list(
    value: Sequence[Any], kind: inspect.ListType | inspect.VarTupleType, path: Path
) -> _Found:
    yield from _check_length(value, kind, path)
    for index, item in enumerate(value):
        yield from _walk(item, kind.item_type, (*path, index))


def _check_choice(value: str, kind: inspect.LiteralType | inspect.EnumType, path: Path) -> _Found:
    choices = kind.values if isinstance(kind, inspect.LiteralType) else tuple(kind.cls)
    if value not in choices:
        yield Mismatch(path, "choice", tuple(str(one) for one in choices), got=value)


def _check_bounds(value: float, kind: inspect.IntType | inspect.FloatType, path: Path) -> _Found:
    for sign, bound, holds in (
        (">=", kind.ge, kind.ge is None or value >= kind.ge),
        (">", kind.gt, kind.gt is None or value > kind.gt),
        ("<=", kind.le, kind.le is None or value <= kind.le),
        ("<", kind.lt, kind.lt is None or value < kind.lt),
    ):
        if not holds:
            text = f"{bound:.15g}" if isinstance(bound, float) else str(bound)
            yield Mismatch(path, "bound", (_KINDS[type(kind)][0],), f"{sign} {text}", value)


def _check_base64(value: str, kind: inspect.BytesType, path: Path) -> _Found:
    try:
        yield from _check_length(base64.b64decode(value, validate=True), kind, path)
    except (binascii.Error, ValueError):
        yield Mismatch(path, "type", ("bytes",), got=value)


def _check_uuid(value: str, kind: inspect.UUIDType, path: Path) -> _Found:
    try:
        msgspec.convert(value, UUID)
    except msgspec.ValidationError:
        yield Mismatch(path, "type", (_KINDS[type(kind)][0],), got=value)


def _check_length(value: Sequence[Any], kind: Any, path: Path) -> _Found:
    """Check the length against ``min_length`` and ``max_length`` of ``kind``."""
    length, name = len(value), _KINDS[type(kind)][0]
    if kind.min_length is not None and length < kind.min_length:
        yield Mismatch(path, "length", (name,), f">= {kind.min_length}", length)
    if kind.max_length is not None and length > kind.max_length:
        yield Mismatch(path, "length", (name,), f"<= {kind.max_length}", length)


_WALKS: dict[type[inspect.Type], Callable[[Any, Any, Path], _Found]] = {
    inspect.StructType: _walk_struct,
    inspect.DictType: _walk_dict,
    inspect.ListType: _walk_list,
    inspect.VarTupleType: _walk_list,
    inspect.LiteralType: _check_choice,
    inspect.EnumType: _check_choice,
    inspect.IntType: _check_bounds,
    inspect.FloatType: _check_bounds,
    inspect.StrType: _check_length,
    inspect.BytesType: _check_base64,
    inspect.UUIDType: _check_uuid,
}
"""The checks of values of the right type."""
