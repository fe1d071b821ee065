"""Runs, the parts that die under them, and at which moment, all from one seed."""

import itertools
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from tests.chaos.plan import Victim

ROOT = str(Path(__file__).parents[3])
STANDING = "chaos"
PARTS = 20
FLAKY = 6
TASKS = 50
"""Of one run: 1 + 20 + 20 + 6 + 1 + 1 + 1."""
FOR_GOOD = 1_000
VICTIMS = (
    Victim.CONTROL,
    Victim.API,
    Victim.AGENT,
    Victim.ZYGOTE,
    Victim.POSTGRES,
    Victim.TEMPORAL,
)


class Moment(StrEnum):
    """Of a run, at which a part is killed."""

    CREATED = "created"
    """While ``POST /runs`` is answered, or just after it."""
    GROUP = "the group of its first step made"
    HALF = "array half done"
    BETWEEN = "between steps"
    CANCEL = "cancel asked"
    CLEANUP = "cleanup step running"


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """One run and how its tasks end by themselves."""

    number: int
    own_group: bool
    failures: Mapping[str, Sequence[int]]
    """Step -> of each of its tasks, so many first attempts fail."""
    seconds: float
    kill: tuple[Victim, Moment] | None = None
    cancelled: bool = False

    def definition(self, records: str) -> dict[str, Any]:
        """The job as `POST /runs` takes it."""
        plan = {
            "worker_count": 4,
            "python_path": [ROOT],
            "environment": {"CHAOS_RUN_RECORDS": records},
        }
        group: dict[str, Any] = {"standing": STANDING}
        if self.own_group:
            hook = {"command": ["/bin/true"]}
            group = {"plan": plan, "setup": hook, "teardown": hook}
        return {
            "name": "chaos",
            "groups": {"main": group},
            "steps": {
                "prepare": self._step("prepare"),
                "split": self._step("split", after="prepare", over=self._items("split")),
                "refine": self._step("refine", after={"split": "each"}),
                "flaky": self._step("flaky", 1, after="prepare", over=self._items("flaky")),
                "merge": {
                    "after": "refine",
                    "handler": "tests.chaos.runs.work:merge",
                    "arguments": [self.number, "{{ results.refine }}", self.seconds],
                    "retry": {"max_terminations": 20},
                },
                "report": self._step("report", after={"flaky": "failure"}),
                "clean": self._step(
                    "clean", after={"merge": "always", "report": "always", "flaky": "always"}
                ),
            },
        }

    def _items(self, step: str) -> list[int]:
        return list(self.failures[step])

    def _step(self, name: str, attempts: int = 2, **fields: Any) -> dict[str, Any]:
        array = name in {"split", "refine", "flaky"}
        index: Any = "{{ task.index }}" if array else 0
        failures: Any = "{{ item }}" if name in {"split", "flaky"} else 0
        seconds = 0.4 if name == "clean" and self.kill is not None else self.seconds
        return {
            "handler": "tests.chaos.runs.work:work",
            "arguments": [self.number, name, index, seconds, failures],
            "retry": {"max_attempts": attempts, "max_terminations": 20},
            **fields,
        }

    def expected(self) -> dict[str, str]:
        """State of each step of a run that nobody cancels."""
        split = all(one < 2 for one in self.failures["split"])
        flaky = all(one < 1 for one in self.failures["flaky"])
        states = {"prepare": "succeeded", "clean": "succeeded"}
        states |= {name: _ended(split) for name in ("split", "refine")}
        states["merge"] = "succeeded" if split else "skipped"
        states["flaky"] = _ended(flaky)
        states["report"] = "skipped" if flaky else "succeeded"
        return states


def _ended(well: bool) -> str:
    return "succeeded" if well else "failed"


def planned_runs(seed: int, count: int) -> list[PlannedRun]:
    """Each part dies once at each moment; the other runs are spread between.

    The same for the same arguments, on any machine. First come the runs in the standing group.
    """
    dice = random.Random(seed)
    kills: list[tuple[Victim, Moment] | None] = list(itertools.product(VICTIMS, Moment))
    kills += [None] * max(count - len(kills), 0)
    dice.shuffle(kills)
    runs = [_run(dice, number, kill) for number, kill in enumerate(kills[:count])]
    return sorted(runs, key=lambda run: run.own_group)


def _run(dice: random.Random, number: int, kill: tuple[Victim, Moment] | None) -> PlannedRun:
    moment = None if kill is None else kill[1]
    own = moment is Moment.GROUP or dice.random() < (0.4 if kill else 0.1)
    split = [dice.choices((0, 1), (19, 1))[0] for _ in range(PARTS)]
    if dice.random() < 0.15:
        split[dice.randrange(PARTS)] = FOR_GOOD
    flaky = [dice.choices((0, FOR_GOOD), (9, 1))[0] for _ in range(FLAKY)]
    cancelled = moment is Moment.CANCEL or (kill is None and dice.random() < 0.1)
    seconds = round(dice.uniform(0.0, 0.05), 3)
    return PlannedRun(number, own, {"split": split, "flaky": flaky}, seconds, kill, cancelled)
