"""A run is of a stored job or of a definition, never of both."""

from typing import Any

import pytest

from mitosis.contracts.errors import InvalidRequest
from mitosis.contracts.runs import StartRun


@pytest.mark.parametrize(
    "given", [{}, {"job": "a", "definition": {}}, {"definition": {}, "version": 1}], ids=str
)
def test_a_run_of_nothing_or_of_two_things_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest, match=r"^definition: "):
        StartRun(**given)


@pytest.mark.parametrize("given", [{"job": "a", "version": 2}, {"definition": {}}], ids=str)
def test_a_run_of_one_thing_is_accepted(given: dict[str, Any]) -> None:
    assert StartRun(**given).parameters == {}
