"""What a message may carry, and what is left of many: every verb, every wrong field."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mitosis.contracts.control import Cancel, Close, Complete, Reopen
from mitosis.contracts.errors import InvalidRequest, InvalidTransition
from mitosis.contracts.lifecycle import TASK_GROUP, TaskGroupEvent, TaskGroupState
from workflows.verbs import MOST_SIGNALS, Verb, VerbQueue, read_verb

KINDS: list[type[Verb]] = [Close, Reopen, Cancel, Complete]
NUMBERS = st.integers() | st.floats()
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=4,
)
GOOD: dict[str, st.SearchStrategy[Any]] = {
    "reason": st.none() | st.text(max_size=20),
    "valid_until": st.none() | st.just("2026-11-28T12:00:00Z"),
    "cancel_running_tasks": st.booleans(),
    "force": st.booleans(),
    "grace_seconds": st.none() | st.floats(min_value=0, max_value=86_400) | st.integers(0, 86_400),
}
WRONG: dict[str, st.SearchStrategy[Any]] = {
    "reason": st.booleans() | NUMBERS | st.lists(JSON, max_size=2),
    "valid_until": st.booleans() | st.just("soon") | st.just("2026-11-28T12:00:00"),
    "cancel_running_tasks": st.none() | NUMBERS | st.text(max_size=5),
    "force": st.none() | NUMBERS | st.text(max_size=5),
    "grace_seconds": st.booleans()
    | st.text(max_size=5)
    | st.floats(max_value=-1e-9, allow_infinity=True)
    | st.floats(min_value=86_401)
    | st.just(float("nan")),
}


def own(kind: type[Verb]) -> list[str]:
    return [name for name in kind.model_fields if name != "kind"]


@st.composite
def arguments(draw: st.DrawFn, kind: type[Verb], wrong: str | None = None) -> dict[str, Any]:
    names = draw(st.sets(st.sampled_from(own(kind))))
    found = {name: draw(GOOD[name]) for name in names if name != wrong}
    if wrong is not None:
        found[wrong] = draw(WRONG[wrong])
    return found


@st.composite
def misspelt(draw: st.DrawFn, kind: type[Verb]) -> str:
    """A name near one of ours, one of another verb, or any text."""
    name = draw(st.sampled_from(own(kind)))
    place = draw(st.integers(0, len(name) - 1))
    near = st.sampled_from(
        [
            name[:place] + name[place + 1 :],
            name[:place] + name[place] + name[place:],
            name.upper(),
            name.replace("_", "-"),
            name + "s",
        ]
    )
    return draw(
        (near | st.sampled_from([*GOOD]) | st.text(max_size=12)).filter(
            lambda word: word not in kind.model_fields
        )
    )


@given(st.data(), st.sampled_from(KINDS))
def test_right_arguments_are_read(data: st.DataObject, kind: type[Verb]) -> None:
    given_fields = data.draw(arguments(kind))
    verb = read_verb(kind, given_fields)
    for name in given_fields.keys() - {"valid_until"}:
        assert getattr(verb, name) == given_fields[name]


@given(st.data(), st.sampled_from(KINDS))
def test_an_unknown_field_is_named(data: st.DataObject, kind: type[Verb]) -> None:
    name = data.draw(misspelt(kind))
    given_fields = {**data.draw(arguments(kind)), name: data.draw(JSON)}
    with pytest.raises(InvalidRequest, match="unknown field") as refused:
        read_verb(kind, given_fields)
    assert refused.value.facts["field"] == name
    assert "reason" in str(refused.value), "it says what would be right"
    assert isinstance(read_verb(kind, given_fields, strict=False), kind), "as earlier runs do"


@given(st.data(), st.sampled_from(KINDS))
def test_a_value_of_another_type_is_named(data: st.DataObject, kind: type[Verb]) -> None:
    name = data.draw(st.sampled_from(own(kind)))
    with pytest.raises(InvalidRequest) as refused:
        read_verb(kind, data.draw(arguments(kind, wrong=name)))
    assert refused.value.facts["field"] == name


@given(JSON.filter(lambda value: value is not None and not isinstance(value, dict)))
def test_an_argument_that_is_no_object_is_refused(value: Any) -> None:
    for kind in KINDS:
        with pytest.raises(InvalidRequest, match="an object or null"):
            read_verb(kind, value)


def effect(verbs: list[Verb]) -> TaskGroupState:
    state = TaskGroupState.OPEN
    for verb in verbs:
        if isinstance(verb, Complete):
            continue
        try:
            state = TASK_GROUP.after(state, TaskGroupEvent(verb.kind))
        except InvalidTransition:
            continue
    return state


def drained(queue: VerbQueue) -> list[Verb]:
    return [queue.take().verb for _ in range(len(queue))]


@given(st.lists(st.sampled_from(KINDS).map(lambda kind: kind()), max_size=MOST_SIGNALS))
def test_merged_signals_have_the_effect_of_all(verbs: list[Verb]) -> None:
    queue = VerbQueue()
    for verb in verbs:
        assert queue.put_signal(verb)
    assert effect(drained(queue)) == effect(verbs)
