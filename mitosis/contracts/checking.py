"""Values that programs give, checked where they are given; every refusal names the field.

For msgspec here, so workers may import it; for pydantic in ``mitosis.contracts.checked_model``. What a
decoder reads it has checked already, and nothing here is run for it.
"""

import re
from typing import Any, TypeVar

import msgspec

from mitosis.contracts.errors import InvalidRequest

T = TypeVar("T")

_PLACE = re.compile(r"^(?P<message>.*?)(?: - at (?:`key` in )?`\$\.?(?P<path>.*)`)?$", re.DOTALL)
_FIELD = re.compile(r"^Object (?P<what>contains unknown|missing required) field `(?P<name>.*)`$")
_MANY = 60
_OURS = {"array": "list", "object": "dict", "null": "None"}


def misfit(error: msgspec.ValidationError) -> tuple[str, str]:
    """What is wrong and the path of the field ("": the whole), of ``Expected `int` >= 1 - at `$.a[0]` ``."""
    place = _PLACE.match(str(error))
    message, path = (place["message"], place["path"] or "") if place else (str(error), "")
    if field := _FIELD.match(message):
        path = f"{path}.{field['name']}".lstrip(".")
        message = "unknown field" if "unknown" in field["what"] else "this field is required"
    return message.replace("`", ""), path


def shown(value: object) -> str:
    """A value in an error: as Python writes it, cut where it gets long."""
    text = repr(value)
    return text if len(text) <= _MANY else f"{text[:_MANY]}…"


def fitting(value: object, kind: type[T], field: str = "") -> T:
    """The value as a ``kind``, if JSON can carry it.

    Args:
        value: anything.
        kind: a struct or whatever else msgspec knows.
        field: what it is called by whoever gave it; the path in it is added.

    Raises:
        InvalidRequest: naming the field and what would be right.
    """
    try:
        msgspec.json.encode(value)
        made = msgspec.convert(msgspec.to_builtins(value), kind)
    except msgspec.ValidationError as error:
        message, path = misfit(error)
        path, given = _in_dict(value, path)
        raise _refused(message, _joined(field, path), given) from None
    except (TypeError, ValueError, RecursionError, OverflowError) as error:
        place, why = _unfit(value, error)
        raise InvalidRequest(why, field=_joined(field, place) or None) from None
    return made


def _refused(message: str, field: str, value: object) -> InvalidRequest:
    """``Expected int >= 0`` as ``must be int >= 0, not -1``, in words of Python."""
    message = re.sub(r"\b(array|object|null)\b", lambda found: _OURS[found[0]], message)
    message = re.sub(r"^Expected ", "must be ", message)
    if ", got " in message:
        message = message.replace(", got ", ", not ")
    elif message.startswith("must"):
        message += f", not {shown(value)}"
    return InvalidRequest(message, field=field or None)


def _joined(field: str, path: str) -> str:
    return f"{field}{path}" if path.startswith("[") else ".".join(filter(None, (field, path)))


def _fields(value: object) -> dict[str, Any]:
    if isinstance(value, msgspec.Struct):
        return {name: getattr(value, name) for name in value.__struct_fields__}
    return {str(key): item for key, item in value.items()} if isinstance(value, dict) else {}


def _at(value: object, path: str) -> object:
    """What stands at a path of names; of a path into a list, the list."""
    for name in path.split("[", maxsplit=1)[0].split("."):
        value = _fields(value).get(name, value)
    return value


def _in_dict(value: object, path: str) -> tuple[str, object]:
    """Of ``environment[...]``, as msgspec says of a dict: the first key that has no text, and its value."""
    above = path.removesuffix("[...]")
    given = _at(value, above)
    if above != path:
        for key, item in _fields(given).items():
            if not isinstance(item, str):
                return f"{above}.{key}", item
    return above, given


def _unfit(value: object, error: Exception) -> tuple[str, str]:
    """The outermost field that cannot be stored as JSON, and why."""
    for name, item in _fields(value).items():
        try:
            msgspec.json.encode(item)
        except (TypeError, ValueError, RecursionError, OverflowError) as found:
            return name, _why(found)
    return "", _why(error)


def _why(error: Exception) -> str:
    if isinstance(error, UnicodeError):
        return "contains a lone surrogate, as in a file name that is not UTF-8"
    if isinstance(error, RecursionError):
        return "is nested too deeply, or contains itself"
    return f"must be what JSON can carry: {error}"


class CheckedStruct(msgspec.StructMeta):
    """Metaclass of structs that programs write: made by a call they are checked, decoded they have been.

    A method ``check`` looks at what types cannot express.
    """

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """As of any class.

        Raises:
            InvalidRequest: naming the field and what would be right.
        """
        made = super().__call__(*args, **kwargs)
        fitting(made, type(made))
        if (check := getattr(made, "check", None)) is not None:
            check()
        return made
