"""A prepared program is started and ends as one that `execve` starts."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support.checkout import ROOT
from tests.support.prepared import (
    AT_IMPORT,
    PreparedPopen,
    PreparedProcess,
    base_environment,
    caller,
    python,
)
from tests.support.processes import living
from tests.support.waiting import wait_until

MODULES, PROBE = ("json",), "tests.support.probe_program"
REAL = (sys.executable, "-P", "-m", PROBE)


def started(program: Sequence[str], folder: Path, *words: str) -> tuple[int, Any, str]:
    env = {**base_environment(), "MITOSIS_X": "\xe9 \udcff", "HOME": str(folder)}
    ran = subprocess.run(
        [*program, *words],
        env=env,
        cwd=folder,
        input="in\n",
        capture_output=True,
        text=True,
        check=False,
    )
    return ran.returncode, json.loads(ran.stdout), ran.stderr


@pytest.mark.parametrize("words", [("0",), ("3", "a b", "\udcfe", "-c")])
def test_it_begins_and_ends_as_the_real_one(tmp_path: Path, words: tuple[str, ...]) -> None:
    prepared = caller(PROBE, base_environment(), MODULES)
    assert prepared != REAL
    assert started(prepared, tmp_path, *words) == started(REAL, tmp_path, *words)


SCRIPT = """
import json, sys
main = sys.modules["__main__"]
assert vars(main) is globals()
print(json.dumps([sys.argv, sys.path, __name__, vars(main).get("__file__")]))
sys.exit("why it ends")
"""


@pytest.mark.parametrize("inline", [True, False], ids=["-c", "file"])
def test_a_script_begins_and_ends_as_the_real_one(tmp_path: Path, inline: bool) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    words = ["-c", SCRIPT, "a b"] if inline else ["script.py", "a b"]
    env = {**base_environment(), "PYTHONPATH": f"{tmp_path}/x:{tmp_path}/y"}
    prepared, real = python(env, MODULES), (sys.executable,)
    assert prepared != real
    ended = [
        subprocess.run([*program, *words], env=env, cwd=tmp_path, capture_output=True, check=False)
        for program in (prepared, real)
    ]
    assert ended[0].stdout
    assert len({(one.returncode, one.stdout, one.stderr) for one in ended}) == 1, ended


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_reach_it(number: signal.Signals) -> None:
    argv = [*caller(PROBE, base_environment(), MODULES), "waits"]
    with subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(number)
        assert process.wait(30) == -number


def test_it_does_not_outlive_its_caller() -> None:
    argv = [*caller(PROBE, base_environment(), MODULES), "waits"]
    with subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        before = set(psutil.process_iter())
        process.kill()
        assert process.stdout.read() == b"", "who held the other end is gone"
    assert living([one for one in before if one.pid == process.pid]) == []


async def test_it_is_waited_for_and_killed() -> None:
    said, out = os.pipe()
    process = await PreparedProcess.start(PROBE, ["given"], out=out, err=out, modules=MODULES)
    os.close(out)
    wait_until(lambda: psutil.pid_exists(process.pid), 10)
    assert process.returncode is None
    process.kill()
    assert await process.wait() == -signal.SIGKILL
    assert process.returncode == -signal.SIGKILL
    assert not psutil.pid_exists(process.pid)
    process.terminate()  # there is nothing to end
    os.close(said)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_program_is_waited_for_as_a_child(tmp_path: Path, number: signal.Signals) -> None:
    with (tmp_path / "out").open("wb") as out:
        process = PreparedPopen(PROBE, ["waits"], base_environment(), out.fileno())
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0)
    wait_until((tmp_path / "out").read_bytes, 30)
    assert process.poll() is None
    assert psutil.Process(process.pid).cwd() == str(Path.cwd())
    process.send_signal(number)
    assert process.wait(30) == process.poll() == process.returncode == -number
    assert not psutil.pid_exists(process.pid)
    process.kill()  # there is nothing to end


@pytest.mark.parametrize("name", AT_IMPORT)
def test_what_is_read_when_an_interpreter_begins_is_not_prepared(name: str) -> None:
    other = {**base_environment(), f"{name}X": "1"}
    assert caller(PROBE, other, MODULES) == REAL


def test_the_server_ends_with_this_process() -> None:
    code = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
from tests.support.prepared import base_environment, caller
import os, psutil, subprocess
argv = [*caller({PROBE!r}, base_environment(), {MODULES!r}), "0"]
subprocess.run(argv, stdin=subprocess.DEVNULL, check=True, capture_output=True)
print([one.pid for one in psutil.Process().children()], flush=True)
os._exit(0)
"""
    said = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    (server,) = json.loads(said.stdout)
    wait_until(lambda: not psutil.pid_exists(server), 10)


USES_AND_DIES = """
import os, signal, subprocess
from tests.support import prepared
path = prepared._own_server(("json",))
if {uses}:
    subprocess.run([*prepared.python(prepared.base_environment(), ("json",)), "-c", ""], check=True)
print(path, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("uses", [False, True])
def test_a_server_whose_owner_was_killed_leaves_no_folder(uses: bool) -> None:
    script = USES_AND_DIES.format(uses=uses)
    ran = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ran.returncode == -signal.SIGKILL, ran.stderr
    folder = Path(ran.stdout.strip()).parent
    wait_until(lambda: not folder.exists())
