"""Handlers that the worker tests run; imported by real workers through ``python_path``."""

import asyncio
import contextlib
import ctypes
import gc
import io
import math
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import mitosis
from tests.support.waiting import wait_until


def add(a: int, b: int = 0) -> int:
    return a + b


def give(value: Any) -> Any:
    return value


class Nested:
    @staticmethod
    def inner() -> str:
        return "inner"


async def add_later(a: int, b: int) -> int:
    await asyncio.sleep(0)
    return a + b


def fail(text: str) -> None:
    raise ValueError(text)


def leave(code: object = None) -> None:
    sys.exit(code)  # type: ignore[arg-type]


def end_main_thread(how: str) -> None:
    """End only the thread that runs handlers; those of ZeroMQ go on."""
    libc = ctypes.CDLL(None)
    if how == "pthread_exit":
        libc.pthread_exit(None)
    libc.syscall(60 if os.uname().machine == "x86_64" else 93, 0)  # exit, not exit_group


def interrupt() -> None:
    raise KeyboardInterrupt


async def interrupt_async() -> None:
    raise KeyboardInterrupt


def vanish(status: int) -> None:
    os._exit(status)


def crash() -> None:
    print("about to crash", file=sys.stderr)
    os.kill(os.getpid(), signal.SIGSEGV)


def not_json() -> object:
    return {"a": object()}


def not_a_number() -> float:
    return math.nan


def nul() -> str:
    return "a\0b"


def halved() -> str:
    return "\ud800"


def deep() -> list[object]:
    value: list[object] = []
    for _ in range(300):
        value = [value]
    return value


def clashing() -> dict[object, int]:
    return {1: 1, "1": 2}


def large() -> str:
    return "x" * 1_000_001


def context() -> dict[str, Any]:
    task = mitosis.current_task()
    return {
        "task_id": task.task_id,
        "task_uuid": str(task.task_uuid),
        "attempt": task.attempt,
        "task_group_name": task.task_group_name,
        "group_name": task.group_name,
        "scratch_folder": str(task.scratch_folder),
        "folder": str(Path.cwd()),
        "extra": os.environ.get("EXTRA"),
    }


def speak() -> None:
    print("printed")
    sys.stderr.write("complained\n")
    os.write(1, b"written\n")
    subprocess.run(["echo", "child"], check=True)


def close_streams() -> None:
    sys.stdout.close()
    sys.stderr.close()


def replace_streams() -> None:
    sys.stdout = sys.stderr = io.StringIO()
    print("into the void")


def change_surroundings() -> None:
    os.chdir("/usr")
    os.environ["MITOSIS_TASK_ID"] = "0"


def shout(count: int) -> None:
    """Fails unless the memory of its output is given back while it runs."""
    for _ in range(count):
        print("x" * 999_999)
    wait_until(lambda: os.fstat(1).st_blocks * 512 < 1_000_000)


def sleep(seconds: float) -> str:
    time.sleep(seconds)
    return "slept"


async def sleep_async(note: str) -> None:
    try:
        await asyncio.sleep(600)
    finally:
        Path(note).write_text("cleaned")  # noqa: ASYNC240 - nothing else runs in this loop


def clean_up(note: str) -> None:
    try:
        time.sleep(600)
    finally:
        Path(note).write_text("cleaned")


def stubborn(note: str) -> None:
    Path(note).write_text(str(os.getpid()))
    while True:
        with contextlib.suppress(BaseException):
            time.sleep(600)


def swallow() -> str:
    try:
        time.sleep(600)
    except BaseException:  # noqa: BLE001 - that is the point
        return "went on"
    return "slept"


def leave_children() -> list[int]:
    plain = subprocess.Popen(["sleep", "600"])
    apart = subprocess.Popen(["sleep", "600"], start_new_session=True)
    return [plain.pid, apart.pid]


def leave_thread() -> None:
    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()


def pid() -> int:
    return os.getpid()


def says_then_waits(gate: str) -> None:
    print("before the gate")
    wait_until(Path(gate).exists, 60)
    print("behind the gate")


def status_of(command: list[str]) -> int:
    return subprocess.run(command, check=False).returncode


def wait_late(way: str) -> int:
    """Start a child that ends with status 7, look at its status after it has been a zombie for long."""
    if way == "system":
        return os.waitstatus_to_exitcode(os.system("exit 7"))  # noqa: S605 - as said
    if way == "popen":
        child = subprocess.Popen(["sh", "-c", "exit 7"])
        _be_zombie(child.pid)
        return child.wait()
    if way == "multiprocessing":
        process = multiprocessing.get_context("fork").Process(target=os._exit, args=(7,))
        process.start()
        assert process.pid is not None
        _be_zombie(process.pid)
        process.join()
        assert process.exitcode is not None
        return process.exitcode
    if way == "fork":
        pid = os.fork()
        if pid == 0:
            os._exit(7)
    else:
        pid = os.posix_spawn("/bin/sh", ["sh", "-c", "exit 7"], os.environ)
    _be_zombie(pid)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _be_zombie(pid: int) -> None:
    """Wait until it has ended, and for three looks of the worker for orphans after that."""
    wait_until(lambda: b") Z" in Path(f"/proc/{pid}/stat").read_bytes())
    orphan = subprocess.run(
        ["sh", "-c", "(true & echo $!)"], check=True, capture_output=True, text=True
    )
    wait_until(lambda: not Path(f"/proc/{orphan.stdout.strip()}").exists())


def known_children() -> list[int]:
    from mitosis.worker.orphans import Births

    (births,) = (thing for thing in gc.get_objects() if isinstance(thing, Births))
    return sorted(births._known)


def text_of(path: str) -> str:
    return Path(path).read_text()


def widen(cores: list[int]) -> list[int]:
    os.sched_setaffinity(0, cores)
    return sorted(os.sched_getaffinity(0))
