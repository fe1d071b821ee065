"""The tree of errors: codes and messages."""

from mitosis.contracts import errors
from mitosis.contracts.errors import BY_CODE, MitosisError


def test_error_codes_are_unique_and_in_the_tree_of_the_docstring() -> None:
    classes = [cls for cls in vars(errors).values() if isinstance(cls, type)]
    ours = [cls for cls in classes if issubclass(cls, MitosisError)]
    assert len({cls.code for cls in ours}) == len(ours)
    for cls in ours:
        assert cls.__name__ in (errors.__doc__ or ""), cls
        assert BY_CODE[cls.code] is cls
        assert cls.__doc__


def test_the_docstring_is_the_default_message() -> None:
    assert str(errors.AlreadyExists()) == "The name is taken."
    assert errors.AlreadyExists("taken", name="x", other=None).facts == {"name": "x"}
