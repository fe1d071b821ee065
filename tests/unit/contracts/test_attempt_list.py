"""A list of attempts in few bytes, for the hello of an agent with a full journal."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.bodies import BODY_LIMIT
from mitosis.contracts.agent_http import AttemptList
from mitosis.contracts.attempt import AttemptKey
from mitosis.contracts.errors import InvalidRequest
from mitosis.contracts.http import MAX_ATTEMPTS_LISTED

KEYS = st.lists(st.builds(AttemptKey, st.integers(0, 2**63 - 1), st.integers(-(2**31), 2**31 - 1)))


@given(KEYS)
def test_the_attempts_come_back_in_ascending_order(keys: list[AttemptKey]) -> None:
    sent = AttemptList.of(keys).model_dump_json()
    assert AttemptList.model_validate_json(sent).keys() == sorted(keys)


def test_the_longest_list_fits_into_a_request() -> None:
    step = (2**63 - 1) // MAX_ATTEMPTS_LISTED
    widest = AttemptList.of(AttemptKey(step * n, 99) for n in range(1, MAX_ATTEMPTS_LISTED + 1))
    assert len(widest.model_dump_json()) < BODY_LIMIT - 100_000


@pytest.mark.parametrize(
    ("steps", "attempts", "field"),
    [
        ([1, 2], [1], ""),
        ([2**62, 2**62], [1, 1], ""),
        ([-1], [1], "task_id_steps[0]"),
        ([1], [2**31], "attempts[0]"),
        ([1] * (MAX_ATTEMPTS_LISTED + 1), [1] * (MAX_ATTEMPTS_LISTED + 1), "task_id_steps"),
    ],
)
def test_a_list_that_names_no_attempts_is_refused(
    steps: list[int], attempts: list[int], field: str
) -> None:
    with pytest.raises(InvalidRequest) as refused:
        AttemptList(task_id_steps=tuple(steps), attempts=tuple(attempts))
    assert refused.value.facts.get("field", "") == field
