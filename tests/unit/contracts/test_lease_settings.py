"""Bounds of how long a host stays with a task group, checked together (C-31, C-35)."""

from datetime import timedelta
from typing import Any

import pytest

from mitosis.contracts.errors import InvalidRequest
from mitosis.contracts.lease_settings import LeaseSettings, LeaseTerms, check_settings, terms_of

DEPLOYMENT = LeaseTerms()


def test_what_a_task_group_does_not_set_is_that_of_the_deployment() -> None:
    own = LeaseSettings(lease_duration=timedelta(hours=2), longest_idle=timedelta(minutes=3))
    terms = LeaseTerms(lease_duration=7200, longest_idle=180)
    assert terms_of(own.values(), DEPLOYMENT) == terms
    check_settings(own.values(), DEPLOYMENT, own.model_fields_set)
    shown = {
        "lease_duration": 7200,
        "longest_lease": 14_400,
        "idle_threshold": 180,
        "longest_idle": 180,
        "preemption_grace": 300,
    }
    assert terms.shown().values() == shown


@pytest.mark.parametrize(
    ("own", "field", "message"),
    [
        (
            {"lease_duration": "5h"},
            "lease_settings.lease_duration",
            "must be at most longest_lease of the deployment, 14400 s, not 18000 s",
        ),
        (
            {"longest_lease": "30m"},
            "lease_settings.longest_lease",
            "must be at least lease_duration of the deployment, 3600 s, not 1800 s",
        ),
        (
            {"idle_threshold": "4m", "longest_idle": "3m"},
            "lease_settings.idle_threshold",
            "must be at most longest_idle, 180 s, not 240 s",
        ),
    ],
)
def test_a_least_value_above_the_greatest_is_refused(
    own: dict[str, Any], field: str, message: str
) -> None:
    with pytest.raises(InvalidRequest, match=message) as refused:
        check_settings(LeaseSettings(**own).values(), DEPLOYMENT, own)
    assert refused.value.facts["field"] == field


@pytest.mark.parametrize("value", [-1, "31d", "soon"])
def test_a_duration_that_makes_no_sense_is_refused(value: object) -> None:
    with pytest.raises(InvalidRequest) as refused:
        LeaseSettings(idle_threshold=value)  # type: ignore[arg-type]
    assert refused.value.facts["field"] == "idle_threshold"
