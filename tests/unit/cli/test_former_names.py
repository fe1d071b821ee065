"""Options and commands under names of earlier versions: accepted, with the same meaning, and not shown."""

import pytest

from mitosis.cli.exit import ExitStatus
from mitosis.cli.follow.exit_statuses import RunExit
from mitosis.cli.subcommands import FORMER_COMMANDS
from tests.support.command import mitosis

pytestmark = pytest.mark.usefixtures("no_stack_here")

FORMER = {
    "run": {"--group": "--user-group", "--max-managers": "--max-hosts", "--hosts": "--max-hosts"},
    "group create": {
        "--group": "--user-group",
        "--max-managers": "--max-hosts",
        "--manager": "--host",
    },
    "group change": {"--max-managers": "--max-hosts"},
    "manager register": {"--group": "--user-group"},
}
WRONG = {"--user-group": "a/b", "--max-hosts": "0", "--host": "me"}
"""A value that is refused, by the name of the option."""
CHECKED_HERE = [
    (command, old, new)
    for command, names in FORMER.items()
    for old, new in names.items()
    if command != "manager register"  # its groups are checked by the API
]


@pytest.mark.parametrize(("command", "old", "new"), CHECKED_HERE)
def test_a_former_name_means_the_same(command: str, old: str, new: str) -> None:
    words = command.split()
    for option in (old, new):
        ran = mitosis(*words, option, WRONG[new], "true")
        assert ran.status in (ExitStatus.INVALID, RunExit.USAGE)
        assert ran.err.startswith(f"error: {new}: ")


@pytest.mark.parametrize("command", FORMER)
def test_the_help_shows_the_present_names_only(command: str) -> None:
    shown = {word.strip(",") for word in mitosis(*command.split(), "--help").out.split()}
    assert not shown & FORMER[command].keys()
    assert shown >= set(FORMER[command].values())


def test_a_host_is_registered_for_a_user_group_under_either_name() -> None:
    for option in ("--user-group", "--group"):
        ran = mitosis("manager", "register", option, "render:write")
        assert ran.status == ExitStatus.UNAVAILABLE  # only the API is missing


def test_a_command_of_the_version_before_runs_under_its_present_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    former, present = "controller", "control"
    monkeypatch.setitem(FORMER_COMMANDS, former, present)
    ran = mitosis(former, "--help")
    assert ran.out.startswith(f"Usage: mitosis {present} ")
    assert ran.err == f"note: `mitosis {former}` is now `mitosis {present}`\n"
    assert f"  {former} " not in mitosis("--help").out
    assert mitosis(present, "--help").err == ""


def test_a_former_name_is_free_for_another_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FORMER_COMMANDS, "doctor", "control")
    assert mitosis("doctor", "--help").out.startswith("Usage: mitosis doctor ")


def test_the_control_worker_is_named_where_it_was() -> None:
    ran = mitosis("worker")
    assert ran.status == ExitStatus.INVALID
    assert "`mitosis control`" in ran.err
