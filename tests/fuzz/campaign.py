"""Chunks of random calls: each over an empty database, with a seed of its own, to be repeated alone."""

import logging
import random
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from itertools import cycle
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import Case, GenerationMode

from api.app import create_app
from tests.fuzz.calls import Answer, Calls, Unsendable, document_without_defaults
from tests.fuzz.cases import copy_of, damaged, use_real_values
from tests.fuzz.servers import Servers, product
from tests.fuzz.world import VALUE, World
from tests.support.route_rules import rule_of

MODES = (("positive", 0.55), ("negative", 0.25), ("damaged", 0.2))
OPERATIONS_OF_A_WORLD = 8
CALLS_OF_A_CASE = 3
"""Making a case costs as much as two calls; each call chooses other members and real values of it."""
WITH_TEMPORAL = 20
"""One chunk in so many has workflows."""
RIGHT_CALLER = 0.85
CALLERS = ("admin", "ann", "reader", "agent", "service", "nobody")
RIGHT = {
    "open": ("nobody",),
    "any": CALLERS,
    "administrator": ("admin",),
    "manager": ("agent",),
    "worker": ("service",),
}
USERS = ("ann", "ann", "ann", "admin", "reader")


@dataclass
class Report:
    """What became of calls; reports add up."""

    calls: int = 0
    unsendable: int = 0
    statuses: Counter[str] = field(default_factory=Counter)
    """By ``operation status``."""
    wrong: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By operation and what is wrong: how often, and the first call as curl."""

    def add(
        self, label: str, caller: str, answer: Answer, curl: Callable[[], str], log: str
    ) -> None:
        self.calls += 1
        self.statuses[f"{label} {answer.status}"] += 1
        for what in answer.wrong:
            key = f"{label} {answer.status} {what.splitlines()[0][:120]}"
            found = self.wrong.setdefault(key, {"times": 0})
            found["times"] += 1
            if found["times"] == 1:
                found |= {"caller": caller, "what": what, "curl": curl(), "log": log}


class LastCrash(logging.Handler):
    """Keeps the traceback of the last request that crashed, and counts lines with what must not be logged."""

    def __init__(self) -> None:
        super().__init__()
        self.text, self.leaks = "", 0

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1] is not None:
            self.text = "".join(traceback.format_exception(record.exc_info[1]))[-4000:]
        if VALUE in record.getMessage() or VALUE in repr(record.__dict__):
            self.leaks += 1


def run_chunk(servers: Servers, number: int, each: int) -> Report:
    """Call every operation ``each`` times over an empty database."""
    report, crash = Report(), LastCrash()
    logging.getLogger().addHandler(crash)
    try:
        with servers.databases.database() as url:
            scheduled = number % WITH_TEMPORAL == 0
            serving = product(url, servers.temporal if scheduled else None)
            api = servers.loop.run(serving.__aenter__())
            try:
                chunk = _Chunk(
                    servers,
                    World(api, scheduled=scheduled),
                    Calls(api.url, VALUE),
                    report,
                    crash,
                    number,
                )
                chunk.run(each)
            finally:
                servers.loop.run(serving.__aexit__(None, None, None))
    finally:
        logging.getLogger().removeHandler(crash)
    if crash.leaks:
        report.wrong[f"planted values in {crash.leaks} lines of the log"] = {"times": crash.leaks}
    return report


@dataclass
class _Chunk:
    servers: Servers
    world: World
    calls: Calls
    report: Report
    crash: LastCrash
    number: int

    def run(self, each: int) -> None:
        dice = random.Random(self.number)
        operations = list(all_operations())
        dice.shuffle(operations)
        for index, operation in enumerate(operations):
            if index % OPERATIONS_OF_A_WORLD == 0:
                print(f"  {index} of {len(operations)} operations", end="\r", flush=True)
                self.servers.loop.run(self.world.renew())
            for modes in self._split(operation, each, dice):
                number = dice.randrange(2**32)
                negative = modes[0] == "negative"
                count = -(-len(modes) // CALLS_OF_A_CASE)
                cases = cycle(_cases(operation, number, count, negative=negative))
                for mode, case in zip(modes, cases, strict=False):
                    self._call(copy_of(case), mode, dice)

    @staticmethod
    def _split(operation: Any, each: int, dice: random.Random) -> list[list[str]]:
        """The modes of the calls: of those over negative cases, and of those over positive ones."""
        modes = dice.choices([name for name, _ in MODES], [weight for _, weight in MODES], k=each)
        if not operation.body:
            modes = ["positive" if mode == "damaged" else mode for mode in modes]
        negative = [mode for mode in modes if mode == "negative"]
        positive = [mode for mode in modes if mode != "negative"]
        return [found for found in (negative, positive) if found]

    def _call(self, case: Case[Any], mode: str, dice: random.Random) -> None:
        operation = case.operation
        rule = rule_of(operation.method, operation.path)
        right = dice.random() < RIGHT_CALLER
        caller = dice.choice(RIGHT.get(rule, USERS) if right else CALLERS)
        use_real_values(case, self.world, dice)
        content = damaged(case.body, dice) if mode == "damaged" else None
        self.crash.text = ""
        try:
            answer = self.calls.make(case, self.world.tokens[caller], content)
        except Unsendable:
            self.report.unsendable += 1
            return
        if answer.status < 300:
            self.world.learn(answer.document)

        def curl() -> str:
            return f"{case.as_curl_command()} {content!r}"[:2000]

        self.report.add(operation.label, caller, answer, curl, self.crash.text)


@cache
def all_operations() -> tuple[Any, ...]:
    """The operations of the document."""
    schema = document_without_defaults(create_app(None).openapi())
    return tuple(found.ok() for found in schema.get_all_operations())


@cache
def _strategy(operation: Any, mode: GenerationMode) -> Any:
    """The cases of an operation; what a strategy has compiled serves all chunks."""
    return operation.as_strategy(generation_mode=mode)


def _cases(operation: Any, number: int, count: int, *, negative: bool) -> list[Case[Any]]:
    """So many random cases; fewer if the operation has no others."""
    made: list[Case[Any]] = []

    @seed(number)
    @settings(
        max_examples=count,
        phases=[Phase.generate],
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(_strategy(operation, GenerationMode.NEGATIVE if negative else GenerationMode.POSITIVE))
    def collect(case: Case[Any]) -> None:
        made.append(case)

    try:
        collect()
    except Unsatisfiable:  # nothing that this operation takes can be wrong
        return made if made or not negative else _cases(operation, number, count, negative=False)
    return made
