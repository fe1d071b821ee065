"""Every mistake on the command line is one clear error that names the option, before anything is sent."""

from pathlib import Path

import pytest

from mitosis.cli.exit import ExitStatus
from tests.support.command import mitosis

pytestmark = pytest.mark.usefixtures("no_stack_here")

CREATE = [
    ([], "NAME", "name the task group"),
    (["bad name"], "NAME: ", "1 to 100 letters"),
    (["g", "--workers", "-1"], "--workers: ", "1, not -1"),
    (["g", "--workers", "20000"], "--workers", "10000"),
    (["g", "--cores", "3-1"], "--cores", "0,2-5"),
    (["g", "--cores", "x"], "--cores", "0,2-5"),
    (["g", "--cores", "0-999999999"], "--cores", "0,2-5"),
    (["g", "--cores", "0,0"], "--cores", "distinct"),
    (["g", "--cores-per-worker", "0"], "--cores-per-worker", "1, not 0"),
    (["g", "--tag", "two words"], "--tag: ", "without spaces"),
    (["g", "--setup", ""], "--setup", "must name a program"),
    (["g", "--setup", "sh -c 'x"], "--setup", "No closing quotation"),
    (["g", "--setup", "true", "--setup-file", "f"], "--setup", "not both"),
    (["g", "--setup-file", "/no/such"], "--setup-file", "cannot read /no/such"),
    (["g", "--teardown-file", "-"], "--teardown-file", "is not JSON: line 1, column 1"),
    (["g", "--auto-close", "soon"], "--auto-close", "write seconds or text like 90s"),
    (["g", "--cancel-grace", "1y"], "--cancel-grace", "write seconds or text like 90s"),
    (["g", "--max-hosts", "0"], "--max-hosts: ", "1, not 0"),
    (["g", "--host", "me"], "--host: ", "UUID"),
    (["g", "--priority", "99999999999"], "--priority", "2147483647"),
]


@pytest.mark.parametrize(("words", "where", "right"), CREATE, ids=lambda value: str(value)[:40])
def test_create_names_the_option(words: list[str], where: str, right: str) -> None:
    ran = mitosis("group", "create", *words)
    assert ran.err.startswith(f"error: {where}")
    assert right in ran.err
    assert ran.status == ExitStatus.INVALID
    assert ran.out == ""


def test_a_refused_value_is_said_once() -> None:
    assert mitosis("group", "create", "g", "--auto-close", "-5").err.count("'-5'") == 1


SUBMIT = [
    ([], "error: ", "give one of: -- COMMAND"),
    (["--handler", "m:f", "--", "true"], "error: ", "given are -- COMMAND and --handler"),
    (["--arguments", "{}", "--", "true"], "--arguments", "needs --handler"),
    (["--handler", "no_colon"], "--handler: ", "module:function"),
    (["--handler", "m:f", "--arguments", "{"], "--arguments", "invalid JSON at character 2"),
    (["--handler", "m:f", "--arguments", "3"], "--arguments", '{"x": 1} or [1, 2]'),
    (["--", ""], "COMMAND: ", "must name a program"),
    (["--env", "NOT_SET_HERE_1", "--", "true"], "--env", "is not set here; write"),
    (["--env", "MITOSIS_X=1", "--", "true"], "--env: ", "set by Mitosis"),
    (["--cwd", "here", "--", "true"], "--cwd: ", "absolute path"),
    (["--retries", "100", "--", "true"], "--retries", "0 to 99"),
    (["--timeout", "x", "--", "true"], "--timeout", "90s, 10m"),
    (["--dedup-key", "k" * 201, "--", "true"], "--dedup-key", "1 to 200 bytes"),
    (["--command-file", "/no/such"], "--command-file", "cannot read"),
]


@pytest.mark.parametrize(("words", "where", "right"), SUBMIT, ids=lambda value: str(value)[:40])
def test_submit_names_the_option(words: list[str], where: str, right: str) -> None:
    ran = mitosis("group", "submit", "g", *words)
    assert where in ran.err
    assert right in ran.err
    assert ran.status == ExitStatus.INVALID


FILES = [
    ("--command-file", "", "contains no command"),
    ("--command-file", "# only a comment\n", "contains no command"),
    ("--command-file", "true\nsh -c 'x\n", "line 2 of -: No closing quotation"),
    ("--command-file", "true\n''\n", "COMMAND: line 2 of -: must name a program"),
    ("--command-file", b"true\n\xff\n", "byte 5 is 0xff"),
    ("--json-file", "", "contains no task"),
    ("--json-file", "[]", "contains no task"),
    ("--json-file", "[{]", "neither a JSON array nor one JSON object per line"),
    ("--json-file", '[{"command":["a"],"priority":"x"}', "neither a JSON array nor"),
    ("--json-file", '[{"command":"a"}', "neither a JSON array nor one JSON object per line"),
    ("--json-file", "[[[", "neither a JSON array nor one JSON object per line"),
    ("--json-file", '[{"command": ["true"], "nice": 3}]', "tasks[0].nice: unknown field"),
    ("--json-file", '[{"command": ["a"], "depends_on": ["x"]}]', "tasks[0].depends_on[0]"),
    (
        "--json-file",
        '{"command": ["true"]}\n{"command": 3}',
        "tasks[1].command: must be an array or null, not an integer",
    ),
    ("--json-file", '[{"command": ["true"]}, {"command": []}]', "tasks[1].command: must name"),
    ("--json-file", '[{"command": ["a"], "handler": "m:f"}]', "exactly one of command and handler"),
]


@pytest.mark.parametrize(("option", "content", "right"), FILES)
def test_a_mistake_in_a_file_is_found_before_anything_is_sent(
    option: str, content: str | bytes, right: str
) -> None:
    ran = mitosis("group", "submit", "g", option, "-", stdin=content)
    assert right in ran.err
    assert ran.status == ExitStatus.INVALID


def test_options_of_tasks_do_not_silently_lose_against_the_json_file() -> None:
    ran = mitosis("group", "submit", "g", "--json-file", "-", "--priority", "3", stdin="[]")
    assert "--priority cannot be combined with --json-file" in ran.err


SPECS = [
    ('{"nome": "x"}', "nome", "there is no such field; the fields here are: name, group_name"),
    ('{"worker_allocation_plan": {"count": 2}}', "worker_allocation_plan.count", "worker_count"),
    (
        '{"environment_setup_hook": {"command": []}}',
        "--spec (environment_setup_hook.command)",
        "must name a program",
    ),
    (
        '{"environment_setup_hook": {"command": ["a"], "cmd": 1}}',
        "--spec (environment_setup_hook.cmd)",
        "the fields here are: command, environment",
    ),
    ("[]", "--spec", "must contain a JSON object"),
    ("{", "--spec", "is not JSON: line 1, column 2"),
]


@pytest.mark.parametrize(("content", "where", "right"), SPECS)
def test_a_mistake_in_a_spec_names_the_field(content: str, where: str, right: str) -> None:
    ran = mitosis("group", "create", "g", "--spec", "-", stdin=content)
    assert where in ran.err
    assert right in ran.err
    assert ran.status == ExitStatus.INVALID


@pytest.mark.parametrize(("content", "where", "right"), SPECS)
def test_a_mistake_in_the_spec_of_a_plan_names_the_argument(
    content: str, where: str, right: str
) -> None:
    ran = mitosis("group", "plan", "-", stdin=content)
    assert where.replace("--spec", "SPEC") in ran.err
    assert "--spec" not in ran.err
    assert right in ran.err
    assert ran.status == ExitStatus.INVALID


USAGE = [
    (["nonsense"], "No such command 'nonsense'"),
    (["group"], "Missing command"),
    (["group", "shw"], "Did you mean 'show'"),
    (["group", "list", "--state", "ajar"], "'open', 'closed', 'complete', 'cancelled'"),
    (["group", "list", "--nonsense"], "No such option: --nonsense"),
    (["group", "wait", "g", "--until", "noon"], "'settled', 'complete'"),
    (["group", "create", "g", "--workers", "many"], "--workers"),
    (["group", "tasks", "g", "--limit", "-1"], "--limit"),
    (["login"], "USERNAME"),
]


@pytest.mark.parametrize(("words", "right"), USAGE, ids=lambda value: " ".join(value)[:40])
def test_usage_errors_are_two_lines(words: list[str], right: str) -> None:
    ran = mitosis(*words)
    assert ran.status == ExitStatus.USAGE
    first, second = ran.err.splitlines()
    assert first.startswith("error: ")
    assert right in first
    assert second.startswith("  see: mitosis")
    assert "Value error" not in ran.err


@pytest.mark.parametrize(
    ("words", "right"),
    [
        (["17"], "error: --group: name the task group of task 17"),
        (["x"], "error: TASK: 'x' is neither the number of a task nor a UUID"),
        (["17", "--group", "a?b"], "write NAME, USERGROUP/NAME or an id"),
    ],
)
def test_a_task_is_named_by_its_number_and_group_or_by_its_uuid(
    words: list[str], right: str
) -> None:
    ran = mitosis("task", "show", *words)
    assert ran.status == ExitStatus.INVALID
    assert right in ran.err


def test_with_json_errors_are_json_too() -> None:
    wrong = mitosis("group", "create", "g", "--workers", "0", "--json").problem
    assert wrong["code"] == "invalid_request"
    assert wrong["type"] == "urn:mitosis:error:invalid_request"
    assert wrong["field"] == "worker_allocation_plan.worker_count"
    assert wrong["option"] == "--workers"
    assert wrong["exit_status"] == ExitStatus.INVALID
    usage = mitosis("group", "lst", "--json").problem
    assert usage["code"] == "usage"
    assert usage["exit_status"] == ExitStatus.USAGE


def test_json_after_two_dashes_belongs_to_the_task() -> None:
    ran = mitosis("group", "submit", "g", "--", "ls", "--json")
    assert ran.status == ExitStatus.UNAVAILABLE
    assert ran.err.startswith("error: no stack runs")


def test_when_nothing_runs_the_error_says_what_to_type() -> None:
    ran = mitosis("group", "list")
    assert ran.status == ExitStatus.UNAVAILABLE
    assert "mitosis up" in ran.err
    assert "--api URL or MITOSIS_API_URL" in ran.err


def test_an_unknown_setting_in_the_settings_file_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "mitosis.toml"
    path.write_text("[api]\nprot = 3\n")
    monkeypatch.setenv("MITOSIS_CONFIG", str(path))
    ran = mitosis("config", "show")
    assert ran.status == ExitStatus.CONFIGURATION
    assert "api.prot" in ran.err
    assert str(path) in ran.err


@pytest.mark.parametrize(
    ("words", "right"),
    [
        (
            [],
            "error: give at least one change: --tag, --label, --tag-match, --priority, --workers, ",
        ),
        (["--max-hosts", "0"], "error: --max-hosts: "),
        (["--auto-close", "x"], "error: --auto-close: 'x' is not a duration"),
    ],
)
def test_a_change_names_what_it_changes(words: list[str], right: str) -> None:
    ran = mitosis("group", "change", "g", *words)
    assert ran.status == ExitStatus.INVALID
    assert ran.err.startswith(right)


@pytest.mark.parametrize("verb", ["show", "tasks", "close", "cancel", "wait", "delete", "submit"])
@pytest.mark.parametrize("group", ["../managers", "a?b=c", "a/b/c", "", "a b", "a#b", "ä"])
def test_what_is_no_name_of_a_group_never_becomes_part_of_an_address(verb: str, group: str) -> None:
    ran = mitosis("group", verb, group)
    assert ran.status == ExitStatus.INVALID
    assert "write NAME, USERGROUP/NAME or an id" in ran.err


@pytest.mark.parametrize(
    "url", ["nonsense", "ftp://x", "http://", "http://[x", "http://x:99999", "http://a b"]
)
def test_what_is_no_address_is_refused(url: str) -> None:
    ran = mitosis("whoami", "--api", url)
    assert ran.status == ExitStatus.INVALID
    assert ran.err.startswith("error: --api: ")


def test_a_password_is_never_taken_from_the_command_line() -> None:
    assert mitosis("login", "ann", "--password", "x").status == ExitStatus.USAGE
    ran = mitosis("login", "ann", "--password-file", "/no/such")
    assert "--password-file: cannot read /no/such" in ran.err
