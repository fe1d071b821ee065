"""The executor of containers: what its configuration may have."""

from typing import Any

import pytest

from mitosis.contracts.errors import ConfigurationError
from mitosis.executors.container import ContainerKind


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, "configuration.image must name an image"),
        ({"image": "--privileged"}, "configuration.image must name an image"),
        ({"image": "a", "command": "resize --fast"}, "configuration.command must be a list"),
        ({"image": "a", "cpus": 0}, "configuration.cpus must be a number above 0"),
        ({"image": "a", "memory_mb": True}, "configuration.memory_mb must be a number"),
        (
            {"image": "a", "pull": "often"},
            "configuration.pull must be one of always, missing, never",
        ),
        ({"image": "a", "network": ""}, "configuration.network must be a name"),
    ],
)
def test_a_wrong_field_is_named_with_what_would_be_right(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        ContainerKind().check(fields)
