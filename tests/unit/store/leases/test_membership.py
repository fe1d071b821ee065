"""Who is a member of a task group (C-32)."""

from typing import Any

import pytest

from mitosis.store.leases.membership import FormerTags, is_member, tags_at
from tests.support.host_facts import group, host

A, B = frozenset("a"), frozenset("b")
NAMED: dict[str, Any] = {"assignment_method": "user_specified"}
CHANGED: dict[str, Any] = {"tags": B, "former_tags": (FormerTags(5, A),)}
"""A host whose tags changed from a to b at version 5."""
RETAGGED: dict[str, Any] = {"tags": B, "member_tags": A}
"""A group whose tags changed from a to b after its last refresh."""


@pytest.mark.parametrize(
    ("of_host", "of_group", "member"),
    [
        ({"tags": A}, {"tags": A}, True),
        ({"tags": A}, {"tags": A, "removed": {1}}, False),
        ({"tags": A}, {"tags": A | B, "tag_match": "all"}, False),
        ({"tags": A}, {"tags": A | B, "tag_match": "any"}, True),
        ({"tags": A}, {"tags": A, "removed": {2}}, True),
        ({"tags": B}, {"tags": A, "added": {1}}, True),
        ({"tags": A}, NAMED, False),
        ({"tags": A}, {**NAMED, "added": {1}}, True),
        ({"tags": A}, RETAGGED, True),
        ({"tags": B}, RETAGGED, False),
        ({"tags": A}, {"member_tags": A | B, "member_tag_match": "any"}, True),
        (CHANGED, {"tags": A, "member_version": 4}, True),
        (CHANGED, {"tags": B, "member_version": 4}, False),
        (CHANGED, {"tags": A, "member_version": 5}, False),
        (CHANGED, {"tags": B, "member_version": 6}, True),
    ],
)
def test_members(of_host: dict[str, Any], of_group: dict[str, Any], member: bool) -> None:
    assert is_member(host(**of_host), group(**of_group)) is member


@pytest.mark.parametrize(("version", "tags"), [(0, "a"), (2, "a"), (3, "b"), (6, "b"), (7, "c")])
def test_a_host_has_had_other_tags_before(version: int, tags: str) -> None:
    former = (FormerTags(3, A), FormerTags(7, B))
    assert tags_at(host(tags=frozenset("c"), former_tags=former), version) == frozenset(tags)
