"""The files beside the database that tasks and hooks write: where they are, and what they say."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from mitosis.contracts.hook import HookSpec
from tests.chaos.facts import Execution
from tests.chaos.task import PREPARED, RECORDS


@dataclass(frozen=True, slots=True)
class Records:
    """One folder outside of the data folder."""

    folder: Path

    def create(self) -> None:
        self.folder.mkdir()
        self.tasks.touch()
        self.hooks_ran.touch()

    @property
    def tasks(self) -> Path:
        return self.folder / "tasks"

    @property
    def hooks_ran(self) -> Path:
        return self.folder / "hooks"

    @property
    def prepared(self) -> Path:
        return self.folder / "environment"

    @property
    def environment(self) -> dict[str, str]:
        """What the tasks are told."""
        return {RECORDS: str(self.tasks), PREPARED: str(self.prepared)}

    def setup(self) -> HookSpec:
        """Fails where the environment is there already: nobody may prepare twice."""
        return _hook(f"mkdir {self.prepared} && echo setup >> {self.hooks_ran}")

    def teardown(self) -> HookSpec:
        """Fails where there is none."""
        return _hook(f"rmdir {self.prepared} && echo teardown >> {self.hooks_ran}")

    def hooks(self) -> tuple[str, ...]:
        return tuple(self.hooks_ran.read_text().split())

    def done(self) -> int:
        """How many tasks have come to an end at least once. Readable whatever is down."""
        return len({run.number for run in self.executions() if run.ended is not None})

    def executions(self) -> tuple[Execution, ...]:
        return executions(self.tasks)


def executions(file: Path) -> tuple[Execution, ...]:
    """What the tasks have recorded in this file."""
    text = file.read_text()
    whole = text[: text.rfind("\n") + 1]  # not the line that is being written
    lines = [line.split() for line in whole.splitlines()]
    ends = {words[1]: int(words[2]) for words in lines if words[0] == "E"}
    return tuple(_executions(lines, ends))


def _executions(lines: list[list[str]], ends: dict[str, int]) -> Iterator[Execution]:
    for kind, nonce, *words in lines:
        if kind == "S":
            number, task_id, attempt, prepared, started = map(int, words[:-1])
            ended, host = ends.get(nonce), words[-1]
            yield Execution(nonce, number, task_id, attempt, bool(prepared), started, ended, host)


def _hook(script: str) -> HookSpec:
    return HookSpec(command=("/bin/sh", "-ec", script))
