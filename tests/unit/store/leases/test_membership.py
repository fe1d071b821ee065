"""Who is a member of a task group (C-32), and what is said about a host that is none."""

from typing import Any

import pytest

from mitosis.store.leases.membership import FormerTags, is_member, not_a_member, tags_at
from tests.support.host_facts import group, host

A, B = frozenset("a"), frozenset("b")
NAMED: dict[str, Any] = {"assignment_method": "user_specified"}
CHANGED: dict[str, Any] = {"tags": B, "former_tags": (FormerTags(5, A),)}
"""A host whose tags changed from a to b at version 5."""
RETAGGED: dict[str, Any] = {"tags": B, "member_tags": A}
"""A group whose tags changed from a to b after its last refresh."""
ADD = "mitosis group managers campaign --add host-1"
REFRESH = "mitosis group managers campaign --refresh"
CHANGES = f"tags have changed since its members were matched; to match again: {REFRESH}"


@pytest.mark.parametrize(
    ("of_host", "of_group", "member"),
    [
        ({"tags": A}, {"tags": A}, True),
        ({"tags": A}, {"tags": A, "removed": {1}}, False),
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


@pytest.mark.parametrize(
    ("of_host", "of_group", "line"),
    [
        (
            {"tags": A},
            {"tags": A, "removed": {1}},
            f"was removed from the task group; to add it: {ADD}",
        ),
        ({}, NAMED, f"is not named for the task group; to add it: {ADD}"),
        ({"tags": B}, {"tags": A}, "lacks a"),
        ({"tags": B}, {"tags": A, "tag_match": "any"}, "has none of a"),
        ({"tags": B}, RETAGGED, f"is not a member: {CHANGES}"),
        (CHANGED, {"tags": B, "member_version": 4}, f"is not a member: {CHANGES}"),
    ],
)
def test_the_reason_and_the_way_out(
    of_host: dict[str, Any], of_group: dict[str, Any], line: str
) -> None:
    assert not_a_member(host(**of_host), group(**of_group)) == line
