"""`mitosis run` against a real stack: piped, on terminals, with every kind of input and of end."""

import base64
import json
import random
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from mitosis.contracts.task_output import kept_bytes
from tests.support.program import (
    MITOSIS,
    mitosis_json,
    prepared_mitosis,
)
from tests.support.run_command import (
    NOISE,
    run,
)
from tests.support.terminal import Terminal
from tests.support.waiting import wait_until

pytestmark = pytest.mark.timeout(180)
POLL = 0.2
"""Seconds between two programs that ask for the same."""


def test_values_come_out_as_they_went_in_and_progress_goes_to_stderr(
    env: Mapping[str, str],
) -> None:
    values = ["a b", "it's", '"', "$(echo no)", "x\ny", "-n", "*"]
    done = run(env, "printf", "%s|", "{}", ":::", *values)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.decode().replace("|\n", "|").split("|")[:-1]) == sorted(values)
    assert b"\x1b" not in done.stdout + done.stderr
    assert b"\r" not in done.stderr
    assert b"7 ok, 0 failed" in done.stderr


def test_any_byte_reaches_the_command(env: Mapping[str, str], tmp_path: Path) -> None:
    odd = [b"\xff\xfe", b"a\nb", b"\xc3\xa9"]
    script = 'printf %s "$1" > out.$2'
    done = run(
        env, "-0", "sh", "-c", script, "sh", "{}", "{#}", cwd=tmp_path, stdin=b"\0".join(odd)
    )
    assert done.returncode == 0, done.stderr
    assert [(tmp_path / f"out.{n}").read_bytes() for n in (1, 2, 3)] == odd


def test_any_byte_comes_out_again(env: Mapping[str, str], tmp_path: Path) -> None:
    """On standard output, in the file of -o, and later from `mitosis logs`; nothing is added."""
    name = tmp_path.name.replace("_", "-")
    words = ["--name", name, "-o", "kept", "printf", "{}", ":::", "\\377\\0\\303\\n\\0z"]
    done = run(env, *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    odd = b"\xff\0\xc3\n\0z"
    assert (done.stdout, (tmp_path / "kept" / "1.out").read_bytes()) == (odd, odd)
    logs = [*prepared_mitosis(env), "logs", name]
    assert subprocess.run(logs, env=dict(env), capture_output=True, check=True).stdout == odd
    shown = subprocess.run([*logs, "--json"], env=dict(env), capture_output=True, check=True).stdout
    assert base64.b64decode(json.loads(shown)[0]["base64"]) == odd


SIZES = (0, 1, 8_191, 8_192, 8_193, 131_071, 131_073, 3_000_000)
"""Around the kept tail, a piece, and several windows."""


@pytest.mark.parametrize("form", ["plain", "json"])
def test_the_whole_output_comes_out(env: Mapping[str, str], tmp_path: Path, form: str) -> None:
    """Byte by byte, though a result holds only 8 KiB: standard output in order, files, JSON."""
    sizes = SIZES if form == "plain" else SIZES[-2:]
    outputs = [random.Random(size).randbytes(size) for size in sizes]
    name = f"{tmp_path.name}-whole".replace("_", "-")
    options = ["--name", name, "-k", "-o", "kept", *(["--json"] if form == "json" else [])]
    words = [sys.executable, "-c", NOISE, "{}", ":::", *map(str, sizes)]
    done = run(env, *options, *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    for number, data in enumerate(outputs, 1):
        for kind in ("out", "err"):
            assert (tmp_path / "kept" / f"{number}.{kind}").read_bytes() == data, (number, kind)
    if form == "plain":
        assert done.stdout == b"".join(outputs)
        words = [*prepared_mitosis(env), "logs", name]
        logs = subprocess.run(words, env=dict(env), capture_output=True, check=False)
        assert logs.returncode == 74
        assert b"the first 2991808 bytes of stdout are missing" in logs.stderr
        return
    *results, _ = map(json.loads, done.stdout.splitlines())
    shown = {line["number"]: line["result"]["detail"] for line in results}
    for number, data in enumerate(outputs, 1):
        assert kept_bytes(shown[number], "stdout") == data


def test_the_dry_run_shows_what_the_run_runs(env: Mapping[str, str], tmp_path: Path) -> None:
    words = ["sh", "-c", 'printf "%s\\n" "$0" "$@"', "{}", "{/.}", "{#}", ":::", "d/a b.txt"]
    shown = run(env, "--dry-run", *words).stdout.decode()
    ran = run(env, *words, cwd=tmp_path).stdout.decode()
    assert shown.strip() == repr([*words[:3], "d/a b.txt", "a b", "1"])
    assert ran.splitlines() == ["d/a b.txt", "a b", "1"]


def test_failures_are_grouped_by_reason_and_the_status_is_one(env: Mapping[str, str]) -> None:
    script = 'test $((${0} % 10)) -eq 0 || exit 0; echo "cannot read /data/$0" >&2; exit 3'
    done = run(env, "--range", "1-40", "--silent", "sh", "-c", script, "{}")
    said = done.stderr.decode()
    assert done.returncode == 1, said
    row = r"^4 +exit 3 +cannot read /data/\d+ +(\d+ \d+ \d+) \+1 +\d+ \d+ \d+ \+1$"
    found = re.search(row, said, re.MULTILINE)
    assert found, said
    assert {int(number) % 10 for number in found[1].split()} == {0}  # inputs, then tasks
    assert "36 ok, 4 failed" in said


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["echo", ":::", "a", "b"], 2, "mitosis run echo {} ::: a b"),
        (["--env", "X=\udcff", "true"], 2, "--env: X: its value is not UTF-8 text"),
        (["--env", "\udcff=1", "true"], 2, "--env: \\xff: the name is not UTF-8 text"),
        (["true", ":::", "a", ":::", "b"], 2, "mitosis run true {1} {2} ::: a ::: b"),
        (["echo {} | wc", ":::", "a"], 2, "mitosis run --shell 'echo {} | wc' ::: a"),
        (["echo", "{}", "::::", "in"], 2, "mitosis run --file in echo {}"),
        (["-o", "/dev/null/x", "true"], 2, "--keep-output: cannot write /dev/null/x"),
        (["--max-fail", "few", "true"], 2, "--max-fail: write a number"),
        ([], 2, "give a command"),
        (["--range", "1-2", "--file", "x", "echo", "{}"], 2, "give only one source"),
        (["--file", "/no/such", "echo", "{}"], 2, "cannot read /no/such"),
        (["--env", "NOT_SET_HERE_1", "true"], 2, "--env: NOT_SET_HERE_1 is not set here"),
        (["--pin", "exclusive", "-w", "5000", "true"], 2, "cores"),
        (["--api", "http://127.0.0.1:1", "true"], 4, "cannot be reached"),
        (["--setup", "sh -c 'echo no disk >&2; exit 9'", "true"], 3, "no disk"),
        (["--setup", "sh -c 'exit 9'", "echo", "{}"], 3, "cannot run: setup failed on "),
        (["--setup", "exit 3", "true"], 3, """write: --setup "sh -c 'exit 3'\""""),
        (["--name", "twice", "--user-group", "nobody", "true"], 66, "nobody"),
        (["no-such-program-here"], 1, "command not found: no-such-program-here"),
    ],
    ids=lambda value: "" if isinstance(value, str | int) else " ".join(value)[:30],
)
def test_a_refused_command_line_names_the_error_and_exits_with_its_status(
    env: Mapping[str, str], words: list[str], status: int, said: str
) -> None:
    done = run(env, *words, open_pipe=words[-1:] == ["{}"])
    assert (done.returncode, said in done.stderr.decode()) == (status, True), done.stderr.decode()
    assert b"Traceback" not in done.stderr


def test_options_end_at_the_command(env: Mapping[str, str]) -> None:
    done = run(env, "echo", "--help", "-w", "9")
    assert (done.returncode, done.stdout) == (0, b"--help -w 9\n")


def test_an_open_pipe_starts_before_it_ends(env: Mapping[str, str], tmp_path: Path) -> None:
    with subprocess.Popen(
        [*prepared_mitosis(env), "run", "-w", "2", "--progress", "plain", "touch", "{}"],
        env=env,
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
    ) as process:
        assert process.stdin is not None
        process.stdin.write(b"first\n")
        process.stdin.flush()
        wait_until((tmp_path / "first").exists, 60)
        assert process.stderr is not None
        said = ""
        while not re.search(r">=\d+/1 ", said):  # the total is not known while the pipe is open
            said += process.stderr.readline().decode()
        process.stdin.write(b"second\nthird")
        process.stdin.close()
        said += process.stderr.read().decode()
        assert process.wait(60) == 0, said
    assert sorted(path.name for path in tmp_path.iterdir()) == ["first", "second", "third"]
    assert "100.0%" in said


def test_output_is_kept_where_asked(env: Mapping[str, str], tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    script = "echo out {}; echo err {} >&2"
    done = run(env, "--shell", "--silent", "-o", str(kept), script, ":::", "x", "y")
    assert (done.returncode, done.stdout) == (0, b""), done.stderr
    found = {path.name: path.read_text() for path in kept.iterdir()}
    assert found == {
        "1.out": "out x\n",
        "1.err": "err x\n",
        "2.out": "out y\n",
        "2.err": "err y\n",
    }


def test_a_late_pipe_is_waited_for_and_an_empty_one_is_no_work(env: Mapping[str, str]) -> None:
    command = shlex.join([*prepared_mitosis(env), "run", "-w", "1", "echo", "{}"])
    line = f"(sleep 0.5; echo late) | {command}"
    late = subprocess.run(["sh", "-c", line], env=env, capture_output=True, check=True, timeout=60)
    assert late.stdout == b"late\n"
    empty = run(env, "echo", "{}", stdin=b"")
    assert (empty.returncode, empty.stdout) == (0, b"")
    assert b"0 ok" in empty.stderr


@pytest.mark.parametrize("line", ["{} </dev/null", "{} <&-", "printf '\\n\\n' | {}"])
def test_an_input_without_anything_is_no_work_wherever_it_comes_from(
    env: Mapping[str, str], line: str
) -> None:
    start = MITOSIS if "&-" in line else prepared_mitosis(env)
    command = shlex.join([*start, "run", "-w", "1", "echo", "{}"])
    argv = ["sh", "-c", line.replace("{}", command)]
    done = subprocess.run(argv, env=env, capture_output=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (0, b""), done.stderr
    assert b"there were no inputs (empty lines do not count); no task was submitted" in done.stderr


def test_a_terminal_is_no_input(env: Mapping[str, str], tmp_path: Path) -> None:
    argv = [*prepared_mitosis(env), "run", "echo", "{}"]
    with Terminal(argv, env, str(tmp_path), 80) as terminal:
        assert terminal.end() == 2
    assert "there are no inputs" in terminal.text


def test_batches_order_and_the_job_log(env: Mapping[str, str], tmp_path: Path) -> None:
    log = tmp_path / "log"
    words = ["-k", "-n", "2", "--joblog", str(log), "--shell"]
    done = run(env, *words, 'sleep 0.$((3 - {#})); echo "$#" {}', ":::", "a b", "c", "d")
    assert (done.returncode, done.stdout) == (0, b"2 a b c\n1 d\n"), done.stderr
    heading, *lines = log.read_text().splitlines()
    assert heading.startswith("Seq\tHost\t")
    assert sorted(line.split("\t")[0] for line in lines) == ["1", "2"]


def test_too_many_failures_cancel_the_rest(env: Mapping[str, str]) -> None:
    for limit in ("1", "1%"):
        done = run(env, "--max-fail", limit, "--range", "1-60", "sh", "-c", "sleep 0.1; exit {}")
        said = done.stderr.decode()
        assert done.returncode == 3, said
        assert re.search(r"more than 1( %)? tasks failed; the others are cancelled", said)
        assert "exit status 3 (--max-fail: too many tasks failed" in said
        assert not said.rstrip().endswith("0 cancelled")


def test_detached_gives_the_name_to_a_script(env: Mapping[str, str], stack: Path) -> None:
    done = run(env, "-d", "echo", "{}", ":::", "a")
    name = done.stdout.decode().strip()
    assert (done.returncode, name[:5]) == (0, "echo-")
    assert f"mitosis watch {name}".encode() in done.stderr
    assert mitosis_json(stack, "group", "wait", name)["tasks_succeeded"] == 1


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        (b"a\nb\0c\n", "error: input 2: must not contain a NUL byte"),
        (b"a\nb\n" + b"x" * 3_000_000, "error: input 3: a task may have 1000000 bytes as JSON"),
    ],
    ids=["NUL", "3 MB"],
)
def test_no_group_is_made_for_inputs_that_are_not_right(
    env: Mapping[str, str], stack: Path, tmp_path: Path, inputs: bytes, said: str
) -> None:
    (tmp_path / "in").write_bytes(inputs)
    before = {group["name"] for group in mitosis_json(stack, "group", "list")}
    done = run(env, "--file", "in", "echo", "{}", cwd=tmp_path)
    assert (done.returncode, done.stderr.decode().startswith(said)) == (2, True), done.stderr
    assert {group["name"] for group in mitosis_json(stack, "group", "list")} == before


def test_an_input_that_is_found_wrong_later_ends_the_run_and_its_group(
    env: Mapping[str, str], stack: Path
) -> None:
    words = [*prepared_mitosis(env), "run", "-w", "1", "--name", "wrong-later", "echo", "{}"]
    with subprocess.Popen(
        words, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"good\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"good\n"
        said = process.communicate(b"\0\n", timeout=60)[1].decode()
    assert process.returncode == 2, said
    assert "error: input 2: must not contain a NUL byte" in said
    assert "wrong-later is cancelled; list the submitted tasks with: mitosis group tasks" in said
    group = mitosis_json(stack, "group", "show", "wrong-later")
    assert (group["state"], group["tasks_succeeded"]) == ("cancelled", 1)


def test_nothing_is_made_before_the_first_input(env: Mapping[str, str], stack: Path) -> None:
    before = {group["name"] for group in mitosis_json(stack, "group", "list")}
    words = [*prepared_mitosis(env), "run", "--deadline", "1s", "echo", "{}"]
    with subprocess.Popen(words, env=env, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.wait(60) == 124
        assert process.stderr is not None
        said = process.stderr.read()
    assert said == b"--deadline passed before the first input; nothing was created\n"
    assert {group["name"] for group in mitosis_json(stack, "group", "list")} == before


def test_columns_of_a_table_and_hooks_around(env: Mapping[str, str], tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("name,n\na b,1\nc,2\n")
    done = run(
        env,
        *("--setup", "mkdir staged", "--teardown", "rm -r staged"),
        *("--from-csv", "in.csv", "sh", "-c", 'echo "$0=$1" > "staged/$1"; cat staged/$1'),
        *("{name}", "{n}"),
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.decode().splitlines()) == ["a b=1", "c=2"]
    assert not (tmp_path / "staged").exists()


@pytest.mark.spec("S002-20", "S002-22")
def test_a_campaign_prepares_its_data_once_and_leaves_only_results(
    env: Mapping[str, str], tmp_path: Path
) -> None:
    """Prepare a data set, train with many parameters on it, clean up."""
    train = "echo $((($(paste -sd+ data/numbers)) * $0)) > model-$0"
    done = run(
        env,
        *("--setup", 'sh -c "mkdir data; seq 10 > data/numbers; echo prepared >> log"'),
        *("--teardown", "rm -r data", "--workers", "2", "sh", "-c", train, "{}"),
        *(":::", "1", "2", "3", "4", "5", "6"),
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "log").read_text() == "prepared\n"
    models = {path.name: path.read_text() for path in tmp_path.glob("model-*")}
    assert models == {f"model-{rate}": f"{55 * rate}\n" for rate in range(1, 7)}
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("columns", [80, 140])
def test_live_lines_fit_the_terminal(env: Mapping[str, str], tmp_path: Path, columns: int) -> None:
    options = ["-w", "2", "--name", f"fits-{columns}", "--range", "1-30", "--silent"]
    argv = [*prepared_mitosis(env), "run", *options]
    with Terminal([*argv, "sleep", "0.0{}"], env, str(tmp_path), columns) as terminal:
        assert terminal.end() == 0, terminal.text
    shown = re.sub(r"\x1b\[\d*[A-Za-z]", "", terminal.text).replace("\r", "")
    assert "\x1b[J" in terminal.text  # drawn over
    assert "100.0 %" in shown
    assert "30 ok, 0 failed" in shown
    assert max(len(line) for line in shown.splitlines()) < columns


def test_no_color_and_dumb_terminals_get_plain_lines(
    env: Mapping[str, str], tmp_path: Path
) -> None:
    for more in ({"NO_COLOR": "1"}, {"TERM": "dumb"}, {"CI": "true"}):
        own = {**env, **more}
        argv = [*prepared_mitosis(own), "run", "-w", "1", "true"]
        with Terminal(argv, own, str(tmp_path), 80) as terminal:
            assert terminal.end() == 0
        assert "\x1b" not in terminal.text, more


def test_ctrl_c_once_detaches_and_the_tasks_go_on(
    env: Mapping[str, str], stack: Path, tmp_path: Path
) -> None:
    argv = [*prepared_mitosis(env), "run", "-w", "1", "--name", "detached", "sh", "-c"]
    with Terminal([*argv, "touch on; sleep 4; touch off"], env, str(tmp_path), 80) as terminal:
        wait_until((tmp_path / "on").exists, 60)
        terminal.press("\x03")
        terminal.read_until("detaching, tasks keep running")
        assert terminal.end() == 130
    assert "mitosis watch detached" in terminal.text
    assert mitosis_json(stack, "group", "wait", "detached")["result"] == "success"
    assert (tmp_path / "off").exists()


def test_ctrl_c_twice_cancels_and_waits_for_the_end(
    env: Mapping[str, str], stack: Path, tmp_path: Path
) -> None:
    argv = [*MITOSIS, "run", "-w", "1", "--name", "stopped", "sh", "-c"]
    script = "trap 'touch told; exit 1' TERM; touch on; while :; do sleep 0.1; done"
    with Terminal([*argv, script], env, str(tmp_path), 140) as terminal:
        wait_until((tmp_path / "on").exists, 60)
        terminal.press("\x03")
        terminal.read_until("Ctrl-C again within 2 s cancels")
        terminal.press("\x03")
        terminal.read_until("cancelling: tasks get SIGTERM")
        assert terminal.end() == 130
    assert set(re.findall(r"exit status (\d+)", terminal.text)) <= {"130"}
    assert (tmp_path / "told").exists()
    group = mitosis_json(stack, "group", "show", "stopped")
    assert (group["state"], group["settled"]) == ("cancelled", True)


@pytest.mark.spec("S001-45")
def test_a_deadline_cancels_the_run(env: Mapping[str, str]) -> None:
    done = run(env, "--deadline", "3s", "sleep", "60")
    assert done.returncode == 124, done.stderr
    assert b"--deadline passed" in done.stderr
