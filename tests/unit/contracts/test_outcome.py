"""How processes end, decoded from wait statuses, and which crashes are given up when."""

import signal

import pytest

from mitosis.contracts.outcome import ExitKind, ExitReason, crash_limit

STOPPED = 0x137F  # What waitpid gives for a stopped child (WUNTRACED): neither exited nor killed.


@pytest.mark.spec("S000-59", "S000-65", "S000-66")
def test_anything_else_is_unknown() -> None:
    assert ExitReason.from_wait_status(STOPPED) == ExitReason(ExitKind.UNKNOWN)
    assert str(ExitReason(ExitKind.UNKNOWN)) == "unknown exit"


@pytest.mark.spec("S000-66")
def test_a_core_dump_is_told() -> None:
    assert ExitReason.from_wait_status(signal.SIGSEGV | 0x80).core_dumped


FATAL_AT_TWO = ("SIGSEGV", "SIGILL", "SIGBUS", "SIGFPE")
NEVER_FATAL = ("SIGTERM", "SIGINT")


@pytest.mark.parametrize("name", FATAL_AT_TWO)
def test_a_broken_program_is_given_up_after_two_crashes(name: str) -> None:
    assert crash_limit(ExitReason(ExitKind.SIGNAL, signal.Signals[name])) == 2


@pytest.mark.parametrize("name", NEVER_FATAL)
def test_being_told_to_stop_is_never_the_tasks_fault(name: str) -> None:
    assert crash_limit(ExitReason(ExitKind.SIGNAL, signal.Signals[name])) is None


def test_everything_else_is_given_up_after_three() -> None:
    others = signal.valid_signals() - {signal.Signals[n] for n in (*FATAL_AT_TWO, *NEVER_FATAL)}
    reasons = [ExitReason(ExitKind.SIGNAL, number) for number in others]
    reasons += [ExitReason(ExitKind.EXIT_CODE, code) for code in (1, 2, 255)]
    reasons += [ExitReason(ExitKind.UNKNOWN)]
    assert {crash_limit(reason) for reason in reasons} == {3}


def test_success_is_never_a_failure() -> None:
    assert crash_limit(ExitReason(ExitKind.SUCCESS, 0)) is None
