"""pydantic models that programs write: made by a call they raise our error, which names the field."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import BaseModel, Strict, ValidationError

from mitosis.contracts.checking import shown
from mitosis.contracts.errors import InvalidRequest

Integer = Annotated[int, Strict()]
Number = Annotated[float, Strict()]
Flag = Annotated[bool, Strict()]
"""What they say and nothing that resembles it: ``true`` is not 1, and "2" is a text, in JSON as in Python."""

_SECRET = ("environment", "password", "token")
"""Fields whose values are not shown."""


class CheckedModel(BaseModel):
    """A model whose constructor raises :class:`InvalidRequest`; what validates it otherwise, as FastAPI does,
    has its own way to say what is wrong.
    """

    def __init__(self, **values: Any) -> None:
        """The fields by name.

        Raises:
            InvalidRequest: naming the field and what would be right.
        """
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise refused(error) from None

    # As BaseModel says of its own: validation makes models without calling it.
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]


def refused(
    error: ValidationError, field: str = "", names: Mapping[str, str] | None = None
) -> InvalidRequest:
    """What pydantic found first, as our error.

    Args:
        error: of a model or a type.
        field: what the value is called by whoever gave it; the path in it is added.
        names: what they call fields of it, by path.
    """
    first = error.errors(include_url=False, include_context=False)[0]
    path = joined_path(first["loc"], field)
    message = str(first["msg"]).removeprefix("Value error, ").replace("Input should", "should")
    if first["type"] == "extra_forbidden":
        message = "unknown field"
    elif first["type"] != "missing" and not any(word in path for word in _SECRET):
        given = shown(first["input"])
        message += "" if given in message else f", not {given}"
    return InvalidRequest(message, field=(names or {}).get(path, path) or None)


def joined_path(location: Sequence[int | str], field: str = "") -> str:
    """``("tasks", 3, "command")`` as ``tasks[3].command``, below ``field``.

    pydantic's mark of an object's key that is wrong, ``[key]``, goes: the key itself is in the path.
    """
    steps = location[:-1] if location and location[-1] == "[key]" else location
    for step in steps:
        field += f"[{step}]" if isinstance(step, int) else f".{step}"
    return field.strip(".")
