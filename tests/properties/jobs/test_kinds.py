"""What is wrong with a value is said without showing it."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from mitosis.contracts.errors import InvalidRequest
from mitosis.jobs.definition import JobDefinition, Step
from mitosis.jobs.expansion import expand
from mitosis.jobs.parameters import bind
from mitosis.jobs.reading import definition_of
from mitosis.jobs.rendering import Values, filled, is_wanted, items_of

SECRET = "planted-secret-0451"
LARGE = 4510451


def job(parameter: dict[str, Any], **step: Any) -> JobDefinition:
    steps = {"a": {"command": ["true"], **step}}
    return definition_of({"name": "j", "parameters": {"x": parameter}, "steps": steps})


TYPES = ("string", "integer", "number", "boolean", "list", "object")
TYPED = [*(job({"type": one}) for one in TYPES), job({"choices": ["low"]})]
COUNTED = job({"type": "integer"}, count="params.x")


def step(**fields: Any) -> Step:
    return job({"type": "list"}, **fields).steps["a"]


_leaf = st.sampled_from([SECRET, LARGE, LARGE + 0.5, -LARGE, None, True])
_value = st.recursive(
    _leaf,
    lambda one: st.lists(one, max_size=3) | st.dictionaries(st.sampled_from(["a", "b"]), one),
    max_leaves=4,
)


def refusals(value: Any) -> Iterator[str]:
    """All that is said about a value, as a parameter and where templates and conditions name it."""
    values = Values(parameters={"x": value}, results={"s": value})
    texts = [f"{{{{ {place} }}}}.txt" for place in ("params.x", "params.x.b", "results.s[7]")]
    attempts: list[Callable[[], Any]] = [
        *(partial(bind, one, {"x": value}) for one in TYPED),
        *(partial(filled, text, values, "here") for text in texts),
        *(partial(is_wanted, step(when=text), values) for text in ("params.x", "params.x < 3")),
        partial(items_of, step(over="params.x"), values),
        partial(expand, COUNTED, {"x": value}),
    ]
    for attempt in attempts:
        try:
            attempt()
        except InvalidRequest as refused:
            yield f"{refused} {refused.facts}"


@settings(deadline=None, max_examples=60)
@given(_value)
def test_no_refusal_shows_the_value_that_it_refuses(value: Any) -> None:
    """A schedule and a run show refusals to users who may only read, and Temporal keeps them."""
    for text in refusals(value):
        assert SECRET not in text
        assert str(LARGE) not in text
