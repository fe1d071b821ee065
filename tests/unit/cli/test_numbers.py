"""Options that take a number or a time: what is out of bounds is refused by name, before anything is made."""

from collections.abc import Iterator
from typing import Any

import pytest
import typer

from mitosis.cli import app
from mitosis.cli.exit import ExitStatus
from mitosis.cli.follow.exit_statuses import RunExit
from mitosis.cli.task.options import bounds_of
from mitosis.contracts.task import RetryPolicy, TaskSubmission
from tests.support.command import mitosis

pytestmark = pytest.mark.usefixtures("no_stack_here")

NOT_A_NUMBER = ("many", "1.5", "")
NOT_A_TIME = ("soon", "-5", "4000d", "")
NO_WORKERS = ("0", "-1", "10001", *NOT_A_NUMBER)
NOT_32_BITS = ("2147483648", "-2147483649", *NOT_A_NUMBER)
NOT_ONE_OR_MORE = ("0", "-1", *NOT_A_NUMBER)
NO_HOSTS = ("2147483648", *NOT_ONE_OR_MORE)
NO_RETRIES = ("-1", "100", *NOT_A_NUMBER)
NO_SPAN = ("0", "0s", *NOT_A_TIME)
NO_BOUND = ("31d", *NOT_A_TIME)
NO_GRACE = ("25h", *NOT_A_TIME)

REFUSED: dict[str, tuple[str, ...]] = {
    "run --batch": NOT_ONE_OR_MORE,
    "run --workers": NO_WORKERS,
    "run --cores-per-worker": NOT_ONE_OR_MORE,
    "run --max-tasks-per-worker": NOT_ONE_OR_MORE,
    "run --max-processes-per-worker": NOT_ONE_OR_MORE,
    "run --max-hosts": NO_HOSTS,
    "run --priority": NOT_32_BITS,
    "run --retries": NO_RETRIES,
    "run --timeout": NO_SPAN,
    "run --deadline": NO_SPAN,
    "run --max-fail": ("150%", "101%", "-5%", "-1", "1.5", "few", "", "%", "²"),
    "run --range": ("5-1", "1", "a-b", "1-5:0", f"1-{10**30}", ""),
    "group create --priority": NOT_32_BITS,
    "group create --workers": NO_WORKERS,
    "group create --cores-per-worker": NOT_ONE_OR_MORE,
    "group change --cores-per-worker": NOT_ONE_OR_MORE,
    "group create --max-tasks-per-worker": NOT_ONE_OR_MORE,
    "group create --max-processes-per-worker": NOT_ONE_OR_MORE,
    "group create --max-hosts": NO_HOSTS,
    "group create --auto-close": NO_SPAN,
    "group create --deadline": NO_SPAN,
    "group create --cancel-grace": NO_GRACE,
    "group create --host-lost-after": ("9", *NOT_A_TIME),
    "group submit --priority": NOT_32_BITS,
    "group submit --retries": NO_RETRIES,
    "group submit --timeout": NO_SPAN,
    "group submit --kill-grace": NOT_A_TIME,
    "group change --priority": NOT_32_BITS,
    "group change --auto-close": NO_SPAN,
    "group change --max-hosts": NO_HOSTS,
    "group change --cancel-grace": NO_GRACE,
    "group change --workers": NO_WORKERS,
    "group change --max-tasks-per-worker": NOT_ONE_OR_MORE,
    "group change --max-processes-per-worker": NOT_ONE_OR_MORE,
    "group delete --grace": NO_GRACE,
    "task cancel --grace": NO_GRACE,
    "task cancel --min-priority": NOT_32_BITS,
    "task cancel --max-priority": NOT_32_BITS,
    "manager drain --timeout": NOT_A_TIME,
    "job list --limit": ("-1", *NOT_A_NUMBER),
    "job versions --limit": ("-1", *NOT_A_NUMBER),
    "job show --version": ("0", *NOT_A_NUMBER),
    "job start --version": ("0", *NOT_A_NUMBER),
    "job runs --limit": ("-1", *NOT_A_NUMBER),
    "job tasks --limit": ("-1", *NOT_A_NUMBER),
    "job cancel --grace": NO_GRACE,
    "job schedule update --accept": NO_HOSTS,
    "job schedule list --limit": ("-1", *NOT_A_NUMBER),
    **{
        f"job schedule {command} {option}": (*values, *NOT_A_TIME)
        for command in ("create", "update")
        for option, values in {
            "--every": ("9s", "0.5"),
            "--offset": ("1.5s",),
            "--jitter": ("2d",),
            "--catch-up": ("9s",),
        }.items()
    },
    "template list --limit": ("-1", *NOT_A_NUMBER),
    "template save --priority": NOT_32_BITS,
    "template save --workers": NO_WORKERS,
    "template save --cores-per-worker": NOT_ONE_OR_MORE,
    "template save --max-tasks-per-worker": NOT_ONE_OR_MORE,
    "template save --max-processes-per-worker": NOT_ONE_OR_MORE,
    "template save --max-hosts": NO_HOSTS,
    "template save --auto-close": NO_SPAN,
    "template save --deadline": NO_SPAN,
    "template save --cancel-grace": NO_GRACE,
    "template save --host-lost-after": ("9", *NOT_A_TIME),
    **{
        f"{command} {option}": NO_BOUND
        for command in ("group create", "group change", "template save")
        for option in (
            "--lease",
            "--longest-lease",
            "--idle",
            "--longest-idle",
            "--preemption-grace",
        )
    },
    "group cancel --grace": NO_GRACE,
    "group complete --grace": NO_GRACE,
    "group wait --timeout": NOT_A_TIME,
    "group list --limit": ("-1", *NOT_A_NUMBER),
    "group tasks --limit": ("-1", *NOT_A_NUMBER),
    "manager list --limit": ("-1", *NOT_A_NUMBER),
    "worker --slots": NO_WORKERS,
    "worker --priority": NOT_32_BITS,
    "worker --max-concurrent": NOT_ONE_OR_MORE,
    "worker --look-seconds": ("0.01", "-5", "nan", "soon", ""),
    "worker list --limit": ("-1", *NOT_A_NUMBER),
    "worker coverage --limit": ("-1", *NOT_A_NUMBER),
    "worker history --limit": ("-1", *NOT_A_NUMBER),
    "handlers list --limit": ("-1", *NOT_A_NUMBER),
    "handlers gaps --limit": ("-1", *NOT_A_NUMBER),
    "manager register --lifetime": NO_SPAN,
    "manager token --lifetime": NO_SPAN,
    "user list --limit": ("-1", *NOT_A_NUMBER),
    "token list --limit": ("-1", *NOT_A_NUMBER),
    "demo --workers": NO_WORKERS,
    "simulate --hosts": ("10001", *NOT_ONE_OR_MORE),
    "simulate --days": ("0", "367", "many", ""),
    "simulate --load": ("0", "11", "much", ""),
    "simulate --seed": NOT_A_NUMBER,
    "simulate --since": NO_SPAN,
}
"""Option -> values that it must refuse."""
CREATE = "group create "
REFUSED |= {
    "group plan --tasks": NOT_ONE_OR_MORE,
    "group plan --task-duration": NO_SPAN,
    **{
        f"group plan {option.removeprefix(CREATE)}": values
        for option, values in REFUSED.items()
        if option.startswith(CREATE)
    },
}
BEHIND = {
    "run": ["true"],
    "group submit": ["g", "--", "true"],
    "demo": [],
    "simulate": [],
    "group list": [],
    "job runs": [],
    "job schedule list": [],
    "job tasks": ["@last", "a"],
    "job cancel": ["@last"],
    "group plan": [],
    "worker": ["--task=images/resize@1=json:dumps"],
    "worker list": [],
    "worker coverage": [],
    "handlers list": [],
    "handlers gaps": [],
    "user list": [],
    "token list": [],
    "task cancel": ["--group=g", "--all"],
    "template list": [],
}
"""What else the command needs; else the name of something."""
NUMERIC = {"N", "TIME", "TIME|never", "N|unlimited", "N|P%", "A-B[:STEP]"}


def numeric_options() -> Iterator[str]:
    """``group create --workers``, of every command there is."""
    root: Any = typer.main.get_command(app)
    yield from _numeric(root, root.context_class(root, info_name="mitosis"), "")


def _numeric(command: Any, context: Any, path: str) -> Iterator[str]:
    for name in command.list_commands(context) if hasattr(command, "list_commands") else ():
        inner = command.get_command(context, name)
        yield from _numeric(inner, inner.context_class(inner, parent=context), f"{path} {name}")
    for one in command.params:
        shown = str(one.metavar or one.display_type(context))
        number = shown.strip("<>").startswith(("int", "float")) or shown in NUMERIC
        if one.param_type_name == "option" and number and not one.hidden:
            yield f"{path} {one.opts[0]}".strip()


def test_no_numeric_option_is_forgotten() -> None:
    assert sorted(numeric_options()) == sorted(REFUSED)


@pytest.mark.parametrize("option", REFUSED)
def test_values_out_of_bounds_are_refused_by_the_name_of_their_option(option: str) -> None:
    *command, name = option.split()
    behind = BEHIND.get(" ".join(command), ["g"])
    first = [] if command == ["run"] else behind[:1]
    for value in REFUSED[option]:
        ran = mitosis(*command, *first, name, value, *behind[len(first) :])
        shown = f"{option} {value!r}: {ran.err}"
        assert ran.status in (ExitStatus.USAGE, ExitStatus.INVALID), shown
        assert name in ran.err.splitlines()[0], shown
        assert "Traceback" not in ran.err, shown
        assert "tasks[0]" not in ran.err, shown


WRONG_FOR_A_RUN = [
    (["--env", "=x"], "--env", "NAME=VALUE"),
    (["--env", ""], "--env", "NAME=VALUE"),
    (["--env", "NOT_SET_HERE_1"], "--env", "is not set here"),
    (["--env", "MITOSIS_X=1"], "--env", "set by Mitosis"),
    (["--env", "A=\udcff"], "--env", "not UTF-8"),
    (["--env", "A=" + "x" * 1_000_000], "--env", "1000000 bytes"),
    (["--cwd", "\udcff"], "--cwd", "not UTF-8"),
    (["--name", ""], "--name", "must be 1 to 100 letters"),
    (["--name", "two words"], "--name", "must be 1 to 100 letters"),
    (["--user-group", "a/b"], "--user-group", "must be 1 to 100 letters"),
    (["--tag", "a b"], "--tag", "without spaces"),
    (["--setup", ""], "--setup", "must name a program"),
    (["--replace", ""], "--replace", "must not be empty"),
    (["--cores", "x"], "--cores", "0,2-5"),
]


@pytest.mark.parametrize(("words", "option", "right"), WRONG_FOR_A_RUN, ids=lambda v: str(v)[:30])
def test_a_run_checks_every_option_before_it_reaches_for_the_api(
    words: list[str], option: str, right: str
) -> None:
    ran = mitosis("run", *words, "true")
    assert ran.status == RunExit.USAGE, ran.err
    assert ran.err.startswith(f"error: {option}")
    assert right in ran.err


def test_what_is_at_the_bound_is_right() -> None:
    """And so is stopped only by the API that is not there."""
    fine = ["-w", "10000", "--retries", "99", "--timeout", "3650d", "--deadline", "1ms"]
    fine += ["--max-fail", "0", "--max-fail", "100%", "--priority", "-2147483648"]
    assert mitosis("run", *fine, "true").status == RunExit.UNREACHABLE
    assert mitosis("group", "wait", "g", "--timeout", "0").status == ExitStatus.UNAVAILABLE
    assert mitosis("group", "cancel", "g", "--grace", "0").status == ExitStatus.UNAVAILABLE


def test_bounds_are_those_of_the_contract() -> None:
    assert (
        bounds_of(TaskSubmission)["timeout_seconds"].text() == "more than 0 and at most 315360000"
    )
    assert bounds_of(RetryPolicy)["max_attempts"].text() == "1 to 100"
