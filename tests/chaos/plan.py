"""What a campaign is made of, all of it from one seed: its tasks, its victims and their moments."""

import random
import sys
from collections.abc import Sequence
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
    API = "api"
    CONTROL = "control-worker"
    RELAY = "relay"
    """The control worker, which carries it, while rows of the outbox are unsent."""


class Topology(StrEnum):
    UP = "up"
    """`mitosis up`: API, control worker and relay in the process of the supervisor."""
    PARTS = "parts"
    """Every part is a process of its own."""

    @property
    def victims(self) -> tuple[Victim, ...]:
        alone = (Victim.API, Victim.CONTROL, Victim.RELAY)
        return tuple(v for v in Victim if self is Topology.PARTS or v not in alone)

    @property
    def own_victims(self) -> tuple[Victim, ...]:
        """What a short campaign kills: of the parts only what the other topology cannot."""
        if self is Topology.UP:
            return self.victims
        return (Victim.API, Victim.CONTROL, Victim.RELAY, Victim.AGENT, Victim.POSTGRES)


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
    topology: Topology = Topology.UP


def plan(
    seed: int,
    tasks: int,
    *,
    pairs: bool,
    topology: Topology = Topology.UP,
    stretch: float = 1.0,
) -> Plan:
    """Everything dies once, and with ``pairs`` once more, two at a time.

    Without, of the parts only what does not die in the other topology. ``stretch``: so many times longer
    tasks, for a campaign of few. The same for the same arguments, on any machine.
    """
    dice = random.Random(seed)
    planned = tuple(_task(dice, number, stretch) for number in range(tasks))
    mortals = topology.victims if pairs else topology.own_victims
    victims: list[tuple[Victim, ...]] = [(victim,) for victim in _shuffled(dice, mortals)]
    if pairs:
        order = _shuffled(dice, mortals)
        victims += [tuple(order[at : at + 2]) for at in range(0, len(order), 2)]
    step = (LAST_KILL - FIRST_KILL) / len(victims)
    moments = [FIRST_KILL + step * (i + 0.7 * dice.random()) for i in range(len(victims))]
    return Plan(seed, planned, tuple(map(PlannedKill, victims, moments)), topology=topology)


def _shuffled(dice: random.Random, victims: Sequence[Victim]) -> list[Victim]:
    return dice.sample(victims, len(victims))


def _task(dice: random.Random, number: int, stretch: float) -> PlannedTask:
    command = dice.random() < 0.5
    seconds = round(stretch * max(0.0, dice.uniform(-0.1, 0.5)), 3)
    failures, max_attempts = dice.choices(
        ((0, 1), (0, 3), (ALWAYS, 1), (ALWAYS, 2), (1, 3)), (80, 7, 4, 3, 6)
    )[0]
    return PlannedTask(number, command, seconds, failures, max_attempts)
