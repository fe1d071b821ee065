"""What failures of hosts mean for a task group, and their texts."""

from typing import Any
from uuid import UUID

import pytest

from mitosis.contracts.host_failures import PAUSES, HostFailureKind
from mitosis.scheduling.host_failures import (
    EndedThere,
    FailedHost,
    HostFailure,
    failing_host,
    setup_failed_on,
)
from tests.support import host_facts


def failure(kind: HostFailureKind, **how: Any) -> HostFailure:
    return host_facts.failure(kind, **how).fact.at(host_facts.NOW)


@pytest.mark.parametrize("kind", HostFailureKind)
def test_a_failure_blocks_until_its_pause_is_over_and_a_failed_setup_for_good(
    kind: HostFailureKind,
) -> None:
    for_good = kind in (HostFailureKind.SETUP_FAILED, HostFailureKind.SUSPECTED)
    assert failure(kind, tried_in_seconds=1.0).blocks is (kind is not HostFailureKind.TASKS_FAILED)
    assert failure(kind, tried_in_seconds=0.0).blocks is for_good
    assert failure(kind, tried_in_seconds=None).blocks is for_good


@pytest.mark.parametrize("kind", HostFailureKind)
def test_each_text_names_the_failure_and_when_it_is_tried_again_or_the_way_out(
    kind: HostFailureKind,
) -> None:
    text = failure(kind, tried_in_seconds=42.0, reason="it broke").sentence("host 1")
    unnamed = (HostFailureKind.UNREACHABLE, HostFailureKind.TASKS_FAILED)
    assert "it broke" in text or kind in unnamed
    if PAUSES.get(kind) is not None:
        assert "tried again in 42 s" in text
    if kind in (HostFailureKind.SETUP_FAILED, HostFailureKind.QUARANTINED):
        assert "mitosis manager re" in text
        assert text.endswith(" 'host 1' --task-group campaign")


def test_hosts_are_named_by_reason_and_a_long_list_says_how_many_are_left_out() -> None:
    few = [
        FailedHost("a", "exit code 3"),
        FailedHost("b", "no message"),
        FailedHost("c", "exit code 3"),
    ]
    assert setup_failed_on(few) == "setup failed on a, c: exit code 3; on b: no message"
    many = [FailedHost(f"host-{number}", f"exit code {number}") for number in range(1000)]
    text = setup_failed_on(many)
    named = text.count("exit code")
    assert text.endswith(f"; and on {1000 - named} more hosts")
    assert 4000 < len(text) < 5000


def ended(name: str | None, failed: int, succeeded: int = 0) -> EndedThere:
    return EndedThere(None if name is None else UUID(int=len(name)), name, failed, succeeded)


@pytest.mark.parametrize(
    ("hosts", "line"),
    [
        ([ended("a", 5)], "5 tasks failed there, and none succeeded; no other host ran any: "),
        (
            [ended("a", 9), ended("bb", 0, 7)],
            "9 tasks failed there, and none succeeded; 7 succeeded elsewhere",
        ),
        ([ended("a", 9), ended("bb", 1)], "9 tasks failed there, and none succeeded"),
        ([ended("a", 55), ended("bb", 3)], None),
        ([ended("a", 55), ended("bb", 3, 2)], "55 tasks failed there, and none succeeded; 2 succ"),
        ([ended("a", 4)], None),
        ([ended("a", 60, 1)], None),
        ([ended("a", 8), ended("bb", 1)], None),
        ([ended("a", 5), ended(None, 1)], None),
        ([ended(None, 60)], None),
        ([], None),
    ],
)
def test_a_host_is_named_if_it_has_nearly_all_failures_and_no_success(
    hosts: list[EndedThere], line: str | None
) -> None:
    found = failing_host(hosts, 5)
    if line is None:
        assert found is None
    else:
        assert found is not None
        assert found.manager_name == "a"
        assert found.line.startswith(f"may be broken: {line}")


def test_a_count_that_is_cut_is_said_to_be_a_least_one() -> None:
    found = failing_host([ended("a", 500)], 5, cut=True)
    assert found is not None
    assert "at least 500 tasks failed there" in found.line
