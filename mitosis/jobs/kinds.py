"""The kinds of JSON values, for errors that readers of a run or a schedule see: a value may be a secret.

Standard library only.
"""

_KINDS: tuple[tuple[type | tuple[type, ...], str], ...] = (
    (bool, "a boolean"),
    (int, "an integer"),
    (float, "a number"),
    (str, "a string"),
    ((list, tuple), "a list"),
    (dict, "an object"),
)


def kind_of(value: object) -> str:
    """Return what a value is, with its article, without showing it."""
    if value is None:
        return "null"
    return next((name for kind, name in _KINDS if isinstance(value, kind)), type(value).__name__)
