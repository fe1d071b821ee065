"""The table of automatic repetitions in the documents has the numbers of the code."""

import pytest

from mitosis.contracts.host_failures import PAUSES, QUARANTINE_AFTER, HostFailureKind
from mitosis.contracts.outcome import (
    LONGEST_PAUSE_SECONDS,
    LOST_ALONE,
    LOST_LIMIT,
    MAX_TERMINATIONS,
    TERMINATION_PAUSE_SECONDS,
)
from mitosis.store.leases.verdicts import (
    AWAITED_SECONDS,
    DOUBT_SECONDS,
    EXCUSED_SECONDS,
    OTHERS_FIRST_SECONDS,
    QUARANTINE_KEPT_SECONDS,
    SUCCEEDED_ELSEWHERE,
    SUSPECTED_BY_TRIALS,
    SUSPECTED_SECONDS,
    TRIED_ELSEWHERE,
)
from mitosis.store.tasks.repetition import Counts, repetition
from tests.support.checkout import ROOT
from tests.support.host_facts import NOW, failure

PAGE = (ROOT / "docs/when-things-die.md").read_text()
SECTION = PAGE.split("## What is repeated by itself")[1].split("\n## ")[0]
ROWS = [line for line in SECTION.splitlines() if line.startswith("| ")][1:]


def row(words: str) -> str:
    (found,) = [line for line in ROWS if words in line.split("|")[1]]
    return found


@pytest.mark.parametrize("kind", HostFailureKind)
def test_each_failure_of_a_host_has_a_row_with_its_pause_and_its_text(
    kind: HostFailureKind,
) -> None:
    if kind is HostFailureKind.TASKS_FAILED:
        assert "(`… may be broken: …`)" in SECTION
        return
    line = row(f"(`{kind.value}`)")
    pause = PAUSES.get(kind)
    if pause is not None:
        expected = f"{pause.first_seconds:.0f} s, doubling up to {pause.longest_seconds:.0f} s"
        assert expected in line.split("|")[3]
    shown = line.split("|")[6].strip().strip("`").strip("…: ").removesuffix(" on")
    assert shown in failure(kind, tried_in_seconds=5.0).fact.at(NOW).sentence("host-1")


def test_the_numbers_of_blame_are_those_of_the_code() -> None:
    suspected = row("(`suspected`)")
    assert suspected.startswith(f"| {QUARANTINE_AFTER} different tasks in a row")
    assert f"at most {SUSPECTED_SECONDS:.0f} s" in suspected
    assert (
        f"| {SUCCEEDED_ELSEWHERE} succeed elsewhere, or {SUCCEEDED_ELSEWHERE} more fail there"
        in suspected
    )
    assert f"| {TRIED_ELSEWHERE} of them at a time to other hosts" in suspected
    assert f"for at most {DOUBT_SECONDS:.0f} s" in SECTION
    assert f"no other host was there for {AWAITED_SECONDS:.0f} s" in suspected
    assert f"until {AWAITED_SECONDS:.0f} s after its last contact" in SECTION
    assert f"after {OTHERS_FIRST_SECONDS:.0f} s to any" in row("a task, by its status")


def test_the_numbers_of_blame_in_the_protocol_are_those_of_the_code() -> None:
    page = (ROOT / "docs/protocol.md").read_text()
    lines = page.split("## P16 Blame")[1].split("\n## ")[0].splitlines()
    numbers = [line.split("|")[2].strip() for line in lines if line.startswith("| ")][1:]
    assert numbers == [
        f"{QUARANTINE_AFTER}",
        f"{DOUBT_SECONDS:.0f} s",
        f"{AWAITED_SECONDS:.0f} s",
        f"{SUSPECTED_SECONDS:.0f} s; {EXCUSED_SECONDS:.0f} s",
        f"{TRIED_ELSEWHERE}",
        f"{SUCCEEDED_ELSEWHERE}",
        f"{SUSPECTED_BY_TRIALS}",
        f"{QUARANTINE_KEPT_SECONDS:.0f} s",
    ]


def test_the_numbers_of_lost_hosts_are_those_of_the_code() -> None:
    assert f"runs alone after {LOST_ALONE}, poison after {LOST_LIMIT}" in row(
        "a host or an agent, while"
    )


def test_the_numbers_of_terminations_are_those_of_the_code() -> None:
    line = row("(`terminated`)")
    pause = f"{TERMINATION_PAUSE_SECONDS:.0f} s, doubling up to {LONGEST_PAUSE_SECONDS:.0f} s"
    assert pause in line.split("|")[3]
    assert f"after {MAX_TERMINATIONS} in a row" in line.split("|")[4]
    once = Counts(exit_failures=0, max_attempts=1, crash_failures=0, lost_count=0, terminations=1)
    shown = line.split("|")[6].strip().strip("`").strip("… ")
    assert (repetition(once) or "").startswith(shown)
