"""The order of versions of a named task."""

import itertools

import pytest

from mitosis.contracts.version_order import version_key

RISING = (
    "2024-01-02",
    "1.0.0-alpha",
    "1.0.0-alpha.1",
    "1.0.0-alpha.beta",
    "1.0.0-beta.2",
    "1.0.0-beta.11",
    "1.0.0-rc.1",
    "2.0.0-rc.1",
    "0.9",
    "1.0.0",
    "1.0.0+build.2",
    "1.0.0+build.11",
    "1.2",
    "v1.9.3",
    "1.10.0",
    "2",
    "x",
)


def test_versions_rise_as_in_semantic_versioning() -> None:
    expected = [*RISING[1:8], RISING[0], *RISING[8:]]
    assert sorted(RISING, key=version_key) == expected


@pytest.mark.parametrize(("one", "other"), [("1", "v1"), ("01", "1"), ("1.0", "1")])
def test_no_two_versions_are_the_same(one: str, other: str) -> None:
    assert version_key(one) != version_key(other)


def test_the_order_is_total() -> None:
    for one, other in itertools.combinations(RISING, 2):
        assert (version_key(one) < version_key(other)) != (version_key(other) < version_key(one))
