"""Each rule of the judge is seen to fail on one planted fault, and on nothing else."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.chaos.services.judge import Result, ServiceFacts, violations


def facts() -> ServiceFacts:
    def result(task_id: int, version: int) -> Result:
        value = {
            "number": task_id,
            "named_task": "shop/a@1",
            "configuration": {"stamp": f"w-1 {version}"},
            "version": version,
        }
        return Result(task_id, "succeeded", 2, "w-1", version, value)

    return ServiceFacts(
        submitted={1: ("shop/a@1", 1), 2: ("shop/a@1", 2)},
        results=[result(1, 1), result(2, 2)],
        stamps={("w-1", "shop/a@1"): ["w-1 1", "w-1 2"]},
        counters={"work": (2, 2)},
        executed=Counter({1: 1, 2: 2}),
        calm=[(2, frozenset({"w-1"}))],
    )


def change(place: int, **fields: object) -> Callable[[ServiceFacts], None]:
    def changed(it: ServiceFacts) -> None:
        results = list(it.results)
        value = dict(results[place].value or {})
        for name in fields.keys() & value.keys():
            value[name] = fields.pop(name)
        results[place] = replace(results[place], value=value, **fields)  # type: ignore[arg-type]
        it.results = results

    return changed


def setting(name: str, value: object) -> Callable[[ServiceFacts], None]:
    return lambda it: setattr(it, name, value)


@pytest.mark.parametrize(
    ("plant", "said"),
    [
        (setting("results", facts().results[:1]), "task 2 is lost"),
        (setting("results", [*facts().results, facts().results[0]]), "task 1 has 2 results"),
        (change(0, state="failed"), "task 1 is failed"),
        (change(0, number=2), "task 1 has the result of another one"),
        (change(0, worker_id="w-2"), "was executed by w-2, which does not support shop/a@1"),
        (change(0, configuration={"stamp": "w-2 1"}), "which ('w-1', 'shop/a@1') never had"),
        (change(0, configuration_version=3), "says version 1, the API 3"),
        (change(0, configuration={"stamp": "w-1 2"}), "do not follow its configurations"),
        (setting("counters", {"work": (3, 2)}), "work counts 3 tasks and lists 2"),
        (setting("executed", Counter({2: 1})), "task 1 was executed 0 times in 2 attempts"),
        (setting("executed", Counter({1: 1, 2: 3})), "task 2 was executed 3 times in 2 attempts"),
        (setting("calm", [(2, frozenset({"w-2"}))]), "shop/a@1 went past the services"),
        (setting("calm", [(1, frozenset({"w-1"}))]), "task 1 has a configuration that had been"),
        (setting("left", ["sh"]), "left: sh"),
    ],
)
def test_a_planted_fault_is_named(plant: Callable[[ServiceFacts], None], said: str) -> None:
    planted = facts()
    assert violations(planted) == []
    plant(planted)
    (found,) = violations(planted)
    assert said in found
