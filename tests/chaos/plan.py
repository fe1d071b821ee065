"""What a campaign is made of, all of it from one seed: its tasks, its victims and their moments."""

import random
import sys
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from mitosis.contracts.task import RetryPolicy, TaskSubmission

TASK = Path(__file__).with_name("task.py")
ALWAYS = 1_000_000
"""So many failing attempts that the task fails for good."""
FIRST_KILL, LAST_KILL = 0.12, 0.8
"""Share of tasks done when the first kill falls, and when the last one may be due at the latest."""


class Victim(StrEnum):
    WORKER = "worker"
    COMMAND = "command"
    ZYGOTE = "zygote"
    AGENT = "agent"
    POSTGRES = "postgres"
    TEMPORAL = "temporal"
    TEMPORAL_WIPED = "temporal-wiped"
    SUPERVISOR = "supervisor"


@dataclass(frozen=True, slots=True)
class PlannedTask:
    """One task and how it must end."""

    number: int
    command: bool
    seconds: float
    failures: int = 0
    """So many first attempts fail by themselves."""
    max_attempts: int = 1

    @property
    def succeeds(self) -> bool:
        return self.failures < self.max_attempts

    def submission(self) -> TaskSubmission:
        retry = RetryPolicy(max_attempts=self.max_attempts)
        if self.command:
            words = [str(self.number), str(self.seconds), str(self.failures)]
            argv = [sys.executable, "-I", "-S", str(TASK), *words]
            return TaskSubmission(command=argv, retry=retry)
        arguments = [self.number, self.seconds, self.failures]
        return TaskSubmission(handler="tests.chaos.task:work", arguments=arguments, retry=retry)


@dataclass(frozen=True, slots=True)
class PlannedKill:
    victims: tuple[Victim, ...]
    """One after the other, without a pause."""
    at: float
    """Share of the tasks that are done by then, 0 to 1."""


@dataclass(frozen=True, slots=True)
class Plan:
    seed: int
    tasks: tuple[PlannedTask, ...]
    kills: tuple[PlannedKill, ...]
    workers: int = 4


def plan(seed: int, tasks: int, *, pairs: bool) -> Plan:
    """Everything dies once, and with ``pairs`` once more, two at a time.

    The same for the same arguments, on any machine.
    """
    dice = random.Random(seed)
    planned = tuple(_task(dice, number) for number in range(tasks))
    victims: list[tuple[Victim, ...]] = [(victim,) for victim in _shuffled(dice)]
    if pairs:
        order = _shuffled(dice)
        victims += zip(order[::2], order[1::2], strict=True)
    step = (LAST_KILL - FIRST_KILL) / len(victims)
    moments = [FIRST_KILL + step * (i + 0.7 * dice.random()) for i in range(len(victims))]
    return Plan(seed, planned, tuple(map(PlannedKill, victims, moments)))


def _shuffled(dice: random.Random) -> list[Victim]:
    return dice.sample(list(Victim), len(Victim))


def _task(dice: random.Random, number: int) -> PlannedTask:
    command, seconds = dice.random() < 0.5, round(dice.uniform(0, 0.3), 3)
    failures, max_attempts = dice.choices(
        ((0, 1), (0, 3), (ALWAYS, 1), (ALWAYS, 2), (1, 3)), (80, 7, 4, 3, 6)
    )[0]
    return PlannedTask(number, command, seconds, failures, max_attempts)
