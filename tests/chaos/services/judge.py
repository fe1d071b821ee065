"""What must hold of the facts of a campaign over worker services; a pure function of them."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Result:
    """One task as the API shows it at the end."""

    task_id: int
    state: str
    attempt: int
    worker_id: str | None
    configuration_version: int | None
    value: Mapping[str, Any] | None


@dataclass(slots=True)
class ServiceFacts:
    """What a campaign has collected."""

    submitted: Mapping[int, tuple[str, int]]
    """By task id: its named task and its number."""
    results: Sequence[Result]
    stamps: Mapping[tuple[str, str], Sequence[str]]
    """By worker service and named task: what its configurations said, in their order."""
    counters: Mapping[str, tuple[int, int]]
    """By task group: tasks that the group counts as succeeded, and tasks listed so."""
    executed: Counter[int]
    calm: Sequence[tuple[int, frozenset[str]]] = ()
    """Single tasks while all services waited with their last configurations; who should execute each."""
    left: Sequence[str] = ()
    """Processes that were still there."""


def violations(facts: ServiceFacts) -> list[str]:
    """Return each rule that does not hold, with the task or service."""
    return [
        *_of_tasks(facts),
        *_of_configurations(facts),
        *_of_calm_tasks(facts),
        *_of_the_whole(facts),
    ]


def _of_tasks(facts: ServiceFacts) -> Iterator[str]:
    seen = Counter(one.task_id for one in facts.results)
    for task_id in facts.submitted.keys() - seen.keys():
        yield f"task {task_id} is lost"
    for task_id, times in seen.items():
        if times > 1 or task_id not in facts.submitted:
            yield f"task {task_id} has {times} results"
    for one in facts.results:
        value = one.value
        if one.state != "succeeded" or value is None:
            yield f"task {one.task_id} is {one.state}"
        elif (value["named_task"], value["number"]) != facts.submitted.get(one.task_id):
            yield f"task {one.task_id} has the result of another one: {value}"
        if not 1 <= facts.executed[one.task_id] <= one.attempt:
            times = facts.executed[one.task_id]
            yield f"task {one.task_id} was executed {times} times in {one.attempt} attempts"


def _of_configurations(facts: ServiceFacts) -> Iterator[str]:
    places: dict[tuple[str, str], dict[int, set[int]]] = defaultdict(lambda: defaultdict(set))
    for one in facts.results:
        if one.value is None:
            continue
        key = (str(one.worker_id), str(one.value["named_task"]))
        if key not in facts.stamps:
            yield f"task {one.task_id} was executed by {key[0]}, which does not support {key[1]}"
            continue
        stamp, version = one.value["configuration"].get("stamp"), one.value["version"]
        if stamp not in facts.stamps[key]:
            yield f"task {one.task_id} has the configuration {stamp}, which {key} never had"
        elif version != one.configuration_version:
            yield f"task {one.task_id} says version {version}, the API {one.configuration_version}"
        else:
            places[key][version].add(list(facts.stamps[key]).index(stamp))
    for key, versions in places.items():
        ordered = [place for version in sorted(versions) for place in sorted(versions[version])]
        if any(len(found) > 1 for found in versions.values()) or ordered != sorted(set(ordered)):
            yield f"versions of {key} do not follow its configurations: {dict(versions)}"


def _of_calm_tasks(facts: ServiceFacts) -> Iterator[str]:
    results = {one.task_id: one for one in facts.results}
    places: dict[str, list[bool]] = defaultdict(list)
    for task_id, preferred in facts.calm:
        one = results.get(task_id)
        if one is None or one.value is None:
            continue  # said as lost
        named_task, worker = str(one.value["named_task"]), str(one.worker_id)
        places[named_task].append(worker in preferred)
        stamps = facts.stamps.get((worker, named_task), ())
        if stamps and one.value["configuration"].get("stamp") == stamps[-1]:
            continue
        yield f"task {task_id} has a configuration that had been replaced before its submit"
    for named_task, right in places.items():
        if 2 * sum(right) < len(right):  # one may be between two claims as the task comes
            yield f"{named_task} went past the services of the highest priority"


def _of_the_whole(facts: ServiceFacts) -> Iterator[str]:
    for group, (counted, listed) in facts.counters.items():
        if counted != listed:
            yield f"{group} counts {counted} tasks and lists {listed}"
    for process in facts.left:
        yield f"left: {process}"
