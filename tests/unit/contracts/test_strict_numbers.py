"""Bodies take no value for another that resembles it: seen in the types of each, so of a new one too."""

from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import ValidationError

from mitosis.contracts.allocation import WorkerAllocationPlan
from mitosis.contracts.checked_model import CheckedModel
from mitosis.contracts.errors import InvalidRequest
from mitosis.contracts.http import TaskGroupSpec


def bodies(model: type[CheckedModel] = CheckedModel) -> Iterator[type[CheckedModel]]:
    """The models of the product; tests derive others."""
    for child in model.__subclasses__():
        if not child.__module__.startswith("tests."):
            yield child
        yield from bodies(child)


def lax(schema: Any) -> Iterator[str]:
    """The kinds of number and truth value in a core schema that accept something else."""
    if isinstance(schema, dict):
        if schema.get("type") in ("int", "float", "bool") and not schema.get("strict"):
            yield schema["type"]
        for key, item in schema.items():
            if key != "serialization":
                yield from lax(item)
    elif isinstance(schema, list | tuple):
        for item in schema:
            yield from lax(item)


@pytest.mark.parametrize("model", list(bodies()), ids=lambda model: model.__name__)
def test_numbers_and_truth_values_are_strict(model: type[CheckedModel]) -> None:
    kinds = list(lax(model.__pydantic_core_schema__))
    assert not kinds, f"{model.__name__} takes something else for {kinds}"


@pytest.mark.parametrize("value", [True, "2", 2.0, None, [2]])
def test_the_sdk_refuses_the_same(value: Any) -> None:
    with pytest.raises(InvalidRequest) as refused:
        WorkerAllocationPlan(worker_count=value)
    assert refused.value.facts["field"] == "worker_count"
    with pytest.raises(InvalidRequest):
        TaskGroupSpec(name="x", priority=value)


def test_an_integer_is_a_number() -> None:
    assert TaskGroupSpec(name="x", cancel_grace_seconds=5).cancel_grace_seconds == 5.0
    with pytest.raises(ValidationError):
        TaskGroupSpec.model_validate({"name": "x", "cancel_grace_seconds": True})
