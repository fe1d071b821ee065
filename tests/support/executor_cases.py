"""The executors as the suite of their contract uses them: the same behaviours, each in its own form.

``arguments.do`` names the behaviour. Every form leaves the same marks in the folder where it is started:
``pid`` when it waits, ``asked`` when it was asked to end and did so.
"""

import asyncio
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from mitosis.contracts.outcome import FailureKind
from mitosis.executors.contract import (
    Ended,
    ExecutionContext,
    ExecutorTask,
    ResourcesRefused,
    ServiceFacts,
)
from mitosis.executors.registry import find_executor
from mitosis.worker.output import end_of
from mitosis.worker.report import encode_result
from tests.support.container_engine import container_engine
from tests.support.executor_stage import Stage, stage

SCRIPT = r"""
given=$(cat)
marks() { echo $$ > pid.part; mv pid.part pid; }
case "$given" in
*'"do":"succeed"'*)
    printf '{"configuration":%s,"given":%s}' "$MITOSIS_CONFIGURATION" "$given" ;;
*'"do":"fail"'*)
    echo "no such shelf" >&2; exit 3 ;;
*'"do":"wait"'*)
    trap 'touch asked; kill $!; exit 0' TERM
    sleep 600 & marks; wait ;;
*'"do":"ignore"'*)
    trap '' TERM; marks; sleep 600 ;;
*'"do":"advance"'*)
    for line in '0.25 copy first' '0.1 copy' '7 none' '{"fraction":0.75,"stage":"check"}' \
                '{"checkpoint":{"file":3}}'; do echo "$line" > "$MITOSIS_PROGRESS"; done
    printf '{"before":%s}' "$MITOSIS_CHECKPOINT" ;;
*) echo "unknown: $given" >&2; exit 9 ;;
esac
"""
HANDLERS = r"""
import json, os, pathlib, signal, subprocess, sys, time
from mitosis import current_task

def _marks():
    pathlib.Path("pid.part").write_text(str(os.getpid()))
    os.rename("pid.part", "pid")

def _say(line):
    with open(os.environ["MITOSIS_PROGRESS"], "w") as file:
        file.write(line + "\n")

def _end(*_):
    pathlib.Path("asked").touch()
    os._exit(0)

def handle(do):
    if do == "succeed":
        print("printed, and no result")
        return {"configuration": dict(current_task().configuration),
                "given": {"spec": {"arguments": {"do": do}}}}
    if do == "fail":
        print("no such shelf", file=sys.stderr)
        sys.exit(3)
    if do in ("wait", "ignore"):
        signal.signal(signal.SIGTERM, _end if do == "wait" else signal.SIG_IGN)
        child = subprocess.Popen(["sleep", "600"])
        _marks()
        child.wait()
    if do == "advance":
        for line in ("0.25 copy first", "0.1 copy", "7 none", '{"fraction":0.75,"stage":"check"}',
                     '{"checkpoint":{"file":3}}'):
            _say(line)
        return {"before": json.loads(os.environ["MITOSIS_CHECKPOINT"])}
"""


class InProcess:
    """An executor as a package might bring it: it works in the event loop, with a child of its own."""

    kind = "in_process"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._child: subprocess.Popen[bytes] | None = None
        self._ended = asyncio.Event()

    async def execute(self, task: ExecutorTask, context: ExecutionContext) -> Ended:
        assert isinstance(task.arguments, dict)
        do = task.arguments["do"]
        if do == "succeed":
            given = {"spec": {"arguments": task.arguments}}
            value = {"configuration": dict(context.configuration), "given": given}
            return Ended(result=encode_result(value))
        if do == "fail":
            said = b"no such shelf\n"
            end = end_of(said, len(said))
            return Ended(kind=FailureKind.EXIT_CODE, exit_code=3, message="exit code 3", stderr=end)
        if do == "advance":
            context.progress(0.25, "copy", "first")
            context.progress(0.1, "copy")
            with pytest.raises(ValueError, match="from 0 to 1"):
                context.progress(7)
            context.progress(0.75, "check")
            await context.checkpoint({"file": 3})
            return Ended(result=encode_result({"before": context.last_checkpoint}))
        self._child = subprocess.Popen(["sleep", "600"])  # noqa: ASYNC220 - 1 ms
        (self.folder / "pid.part").write_text(str(self._child.pid))
        (self.folder / "pid.part").rename(self.folder / "pid")
        try:
            await self._ended.wait()
        finally:
            self._child.kill()
            self._child.wait()
        return Ended(kind=FailureKind.CANCELLED, message="cancelled")

    def estimate_seconds(self, task: ExecutorTask) -> float | None:
        return task.configuration.get("estimate_seconds")

    def validate_resources(self, task: ExecutorTask) -> None:
        if task.configuration.get("memory_mb", 0) > 1_000_000:
            raise ResourcesRefused("memory_mb is more than there is")

    async def cancel(self, grace_seconds: float) -> None:
        self._grace = grace_seconds
        if (self.folder / "ignore").exists():
            asyncio.get_running_loop().call_later(grace_seconds, self._ended.set)
        else:
            (self.folder / "asked").touch()
            self._ended.set()


@dataclass
class InProcessKind:
    folder: Path

    def check(self, configuration: Any) -> None: ...

    async def start(self, service: ServiceFacts) -> None: ...

    async def close(self) -> None: ...

    def make(self) -> InProcess:
        return InProcess(self.folder)


@dataclass
class Case:
    """One executor, ready to be staged in a folder."""

    name: str
    folder: Path
    monkeypatch: pytest.MonkeyPatch
    configuration: dict[str, Any] = field(default_factory=lambda: {"size": 300})

    @contextmanager
    def staged(self, **configuration: Any) -> Iterator[Stage]:
        with _MAKE[self.name](self, {**self.configuration, **configuration}) as it:
            yield it

    def is_gone(self) -> bool:
        """Whether the process that wrote ``pid``, if it came to that, has ended."""
        if not (self.folder / "pid").exists():
            return True
        try:
            os.kill(int((self.folder / "pid").read_text()), 0)
        except ProcessLookupError:
            return True
        return False


@contextmanager
def _command(case: Case, configuration: dict[str, Any]) -> Iterator[Stage]:
    program = ("sh", "-c", SCRIPT)
    kind = find_executor("command")
    with stage(case.folder, "command", kind, configuration, command=program) as it:
        yield it


@contextmanager
def _handler(case: Case, configuration: dict[str, Any]) -> Iterator[Stage]:
    (case.folder / "shop.py").write_text(HANDLERS)
    kind = find_executor("handler")
    with stage(case.folder, "handler", kind, configuration, handler="shop:handle") as it:
        yield it


@contextmanager
def _container(case: Case, configuration: dict[str, Any]) -> Iterator[Stage]:
    image = {"image": "shop:1", "command": ["sh", "-c", SCRIPT]}
    with container_engine(case.folder) as daemon:
        case.monkeypatch.setenv("PATH", f"{case.folder}/bin:{os.environ['PATH']}")
        kind = find_executor("container")
        with stage(case.folder, "container", kind, {**image, **configuration}) as it:
            it.daemon = daemon
            yield it


@contextmanager
def _in_process(case: Case, configuration: dict[str, Any]) -> Iterator[Stage]:
    with stage(case.folder, "in_process", InProcessKind(case.folder), configuration) as it:
        yield it


_MAKE: dict[str, Callable[[Case, dict[str, Any]], Any]] = {
    "command": _command,
    "handler": _handler,
    "container": _container,
    "in_process": _in_process,
}
CASES = tuple(_MAKE)
