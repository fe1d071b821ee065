"""What a campaign is made of, all of it from one seed: groups, the verbs that hit them, troubles, moments."""

import random
import sys
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from mitosis.contracts.task import RetryPolicy, TaskSubmission
from tests.chaos.plan import ALWAYS, PlannedTask

TASK = Path(__file__).parents[1] / "task.py"
FIRST_TROUBLE, LAST_TROUBLE = 0.03, 0.9
"""Share of all tasks that are done when the first trouble begins, and the last one at the latest."""
GROUPS_AT_ONCE = 4
HOSTS = 3
LARGE = 200_000
"""Characters that a large task gives."""


class Verb(StrEnum):
    """What hits a group before its end."""

    NONE = "none"
    REOPEN = "reopen"
    """Closed when half is submitted, and opened for the rest."""
    CANCEL = "cancel"
    CANCEL_SOFTLY = "cancel-softly"
    """What runs may end."""
    COMPLETE = "complete-by-force"
    REFUSED = "refused"
    """Verbs that are refused by then: delete, reopen and complete of a group that tears down."""


class Moment(StrEnum):
    """When, and beside what, a verb is given."""

    RUNNING = "running"
    SETUP = "setup"
    TEARDOWN = "teardown"
    HOST_CUT = "host-cut"
    """One of its hosts is cut off from the API."""
    HOST_DEAD = "host-dead"
    """The agent of one of its hosts is killed, and started again after the verb."""
    API_DOWN = "api-down"
    CONTROL_DOWN = "control-worker-down"


class Trouble(StrEnum):
    """What happens to hosts and servers."""

    API = "api"
    CONTROL = "control-worker"
    POSTGRES = "postgres"
    TEMPORAL = "temporal"
    TEMPORAL_WIPED = "temporal-wiped"
    AGENT = "agent"
    ZYGOTE = "zygote"
    WORKER = "worker"
    COMMAND = "command"
    PAUSE = "agent-stopped"
    """SIGSTOP, then SIGCONT."""
    CUT = "network-cut"
    CUT_TEMPORAL = "temporal-cut"
    LOST_ANSWERS = "lost-answers"
    BUSY_REPORTS = "reports-refused-for-now"
    REFUSED_REPORTS = "large-reports-refused"
    REVOKED = "token-revoked"
    FULL_PIDS = "pids-full"


ON_SERVERS = (
    Trouble.API,
    Trouble.CONTROL,
    Trouble.POSTGRES,
    Trouble.TEMPORAL,
    Trouble.TEMPORAL_WIPED,
)


@dataclass(frozen=True, slots=True)
class MixedTask(PlannedTask):
    """A task that may also give much."""

    size: int = 0
    """So many characters beside its answer: in the result of a handler, in the output of a command."""

    def submission(self) -> TaskSubmission:
        retry = RetryPolicy(max_attempts=self.max_attempts)
        if self.command:
            words = [str(self.number), str(self.seconds), str(self.failures), str(self.size)]
            argv = [sys.executable, "-I", "-S", str(TASK), *words]
            return TaskSubmission(command=argv, retry=retry)
        arguments = [self.number, self.seconds, self.failures, self.size]
        return TaskSubmission(handler="tests.chaos.task:work", arguments=arguments, retry=retry)


@dataclass(frozen=True, slots=True)
class PlannedGroup:
    number: int
    tasks: tuple[MixedTask, ...]
    verb: Verb
    moment: Moment
    at: float
    """Share of its tasks that are done when the verb is given while they run."""
    delete: bool
    workers: int
    max_managers: int | None
    hook_seconds: float

    @property
    def goes_on(self) -> bool:
        """Whether every task of it runs to its end."""
        return self.verb in (Verb.NONE, Verb.REOPEN, Verb.REFUSED)


@dataclass(frozen=True, slots=True)
class PlannedTrouble:
    trouble: Trouble
    at: float
    """Share of all tasks that are done by then."""
    host: int
    seconds: float


@dataclass(frozen=True, slots=True)
class MixedPlan:
    seed: int
    groups: tuple[PlannedGroup, ...]
    troubles: tuple[PlannedTrouble, ...]
    hosts: int = HOSTS

    @property
    def tasks(self) -> int:
        return sum(len(group.tasks) for group in self.groups)


SITUATIONS: tuple[tuple[Verb, Moment], ...] = tuple(
    (verb, moment)
    for verb in (Verb.CANCEL, Verb.CANCEL_SOFTLY, Verb.COMPLETE, Verb.REOPEN)
    for moment in Moment
    if moment is not Moment.TEARDOWN and (verb is not Verb.COMPLETE or moment is not Moment.SETUP)
)
"""All but those that only a teardown makes."""


def mixed_plan(seed: int, tasks: int, *, per_group: int = 500, rounds: int = 3) -> MixedPlan:
    """Every trouble ``rounds`` times; one group in three only goes on, the others meet a verb.

    The same for the same arguments, on any machine.
    """
    dice = random.Random(seed)
    count = max(4, tasks // per_group)
    sizes = [tasks // count + (i < tasks % count) for i in range(count)]
    situations: list[tuple[Verb, Moment]] = dice.sample(SITUATIONS, len(SITUATIONS))
    situations[0:0] = [(Verb.REFUSED, Moment.TEARDOWN), (Verb.NONE, Moment.RUNNING)]
    groups = tuple(_group(dice, i, sizes[i], situations) for i in range(count))
    kinds = [kind for _ in range(rounds) for kind in dice.sample(tuple(Trouble), len(Trouble))]
    step = (LAST_TROUBLE - FIRST_TROUBLE) / len(kinds)
    troubles = tuple(
        PlannedTrouble(
            kind,
            FIRST_TROUBLE + step * (i + 0.7 * dice.random()),
            dice.randrange(HOSTS),
            dice.choice((0.5, 3.0, 24.0)),
        )
        for i, kind in enumerate(kinds)
    )
    return MixedPlan(seed, groups, troubles)


def _group(
    dice: random.Random, number: int, size: int, situations: list[tuple[Verb, Moment]]
) -> PlannedGroup:
    plain = number % 3 == 2
    verb, moment = (Verb.NONE, Moment.RUNNING) if plain else situations[number % len(situations)]
    return PlannedGroup(
        number,
        tuple(_task(dice, i) for i in range(size)),
        verb,
        moment,
        at=round(dice.uniform(0.2, 0.8), 2),
        delete=dice.random() < 0.6,
        workers=dice.choice((2, 3)),
        max_managers=dice.choice((1, 2, None)),
        hook_seconds=6.0 if verb is Verb.REFUSED else dice.choice((0.1, 0.5, 1.5)),
    )


def _task(dice: random.Random, number: int) -> MixedTask:
    command = dice.random() < 0.4
    seconds = dice.choices((0.0, 0.05, 0.2, 2.0), (50, 30, 18, 2))[0]
    failures, max_attempts = dice.choices(
        ((0, 1), (0, 3), (ALWAYS, 1), (ALWAYS, 2), (1, 3)), (80, 7, 4, 3, 6)
    )[0]
    size = dice.choices((0, 5_000, LARGE), (90, 8, 2))[0]
    return MixedTask(number, command, seconds, failures, max_attempts, size)
