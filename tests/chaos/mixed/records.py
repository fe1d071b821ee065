"""The files of one group that its tasks and hooks write, beside the database."""

import time
from dataclasses import dataclass
from pathlib import Path

from mitosis.contracts.hook import HookSpec
from tests.chaos.facts import Execution
from tests.chaos.mixed.facts import HookLine
from tests.chaos.records import executions
from tests.chaos.task import PREPARED, RECORDS

CLOCKS_APART = time.time_ns() - time.monotonic_ns()


@dataclass(frozen=True, slots=True)
class MixedRecords:
    folder: Path

    def create(self) -> None:
        self.folder.mkdir(parents=True)
        self.tasks.touch()
        self.hook_lines.touch()

    @property
    def tasks(self) -> Path:
        return self.folder / "tasks"

    @property
    def hook_lines(self) -> Path:
        return self.folder / "hooks"

    @property
    def prepared(self) -> str:
        return f"{self.folder}/on-$MITOSIS_MANAGER_ID"

    @property
    def environment(self) -> dict[str, str]:
        """What the tasks are told."""
        return {RECORDS: str(self.tasks), PREPARED: self.prepared}

    def hook(self, kind: str, seconds: float) -> HookSpec:
        """The setup makes the folder of its host, the teardown removes it; both may be repeated."""
        deed = "mkdir -p" if kind == "setup" else "rm -rf"
        script = (
            f'say() {{ t=$(date +%s%N) && echo "$1 {kind} $MITOSIS_MANAGER_ID $t" >> {self.hook_lines}; }}'
            f"; say S; {deed} {self.prepared}; sleep {seconds}; say E"
        )
        return HookSpec(command=("/bin/sh", "-ec", script))

    def done(self) -> int:
        """Tasks that have come to an end at least once. Readable whatever is down."""
        return len({run.number for run in self.executions() if run.ended is not None})

    def executions(self) -> tuple[Execution, ...]:
        return executions(self.tasks)

    def hooks(self) -> tuple[HookLine, ...]:
        lines = [line.split() for line in self.hook_lines.read_text().splitlines()]
        return tuple(
            HookLine(word == "S", kind, host, int(at) - CLOCKS_APART)
            for word, kind, host, at in lines
        )

    def running(self, kind: str) -> bool:
        """Whether a hook of this kind has begun somewhere and not ended."""
        lines = [line.began for line in self.hooks() if line.kind == kind]
        return lines.count(True) > lines.count(False)
