"""What failures of hosts mean for a task group, and their texts."""

import pytest

from mitosis.contracts.host_failures import PAUSES, HostFailureKind
from tests.support.host_facts import failure


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
