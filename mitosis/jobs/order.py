"""The order of the steps of a run: which ones start, which are skipped, and what the run has come to.

Decided from the definition and from what has ended, and from nothing else, so the answer can be computed
again at any time.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum

from mitosis.jobs.definition import JobDefinition, Step
from mitosis.jobs.fields import Outcome
from mitosis.jobs.graph import layers


class StepEnd(StrEnum):
    """How a step has ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    """A task has failed, or a limit of time or failures has ended it."""
    SKIPPED = "skipped"
    """Its turn came and its conditions did not hold; no failure."""
    CANCELLED = "cancelled"


class RunEnd(StrEnum):
    SUCCESS = "success"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class Turn:
    """The steps that can be decided now; names in the order of the layers."""

    ready: tuple[str, ...]
    """To start, unless their ``when`` does not hold: then they are skipped."""
    skipped: tuple[str, ...]
    """What they wait for has ended otherwise."""


def next_steps(
    definition: JobDefinition, started: Collection[str], ended: Mapping[str, StepEnd]
) -> Turn:
    """Return the steps whose turn it is.

    A step is decided when every step that it comes after has ended; one that it follows one by one need
    only have started.

    Args:
        definition: of the version that the run has.
        started: names of the steps that have started; those that have ended may be left out.
        ended: how steps have ended.
    """
    done = dict(ended)
    ready: list[str] = []
    skipped: list[str] = []
    for name in steps_in_order(definition):
        if name in started or name in done:
            continue
        wanted = _is_wanted(definition.steps[name], started, done)
        if wanted:
            ready.append(name)
        elif wanted is False:
            skipped.append(name)
            done[name] = StepEnd.SKIPPED
    return Turn(tuple(ready), tuple(skipped))


def steps_in_order(definition: JobDefinition) -> list[str]:
    """Return the names of the steps, each after all that come before it."""
    return [name for layer in layers_of(definition.steps) for name in layer]


def layers_of(steps: Mapping[str, Step]) -> list[list[str]]:
    """Return the names of steps in layers; see :func:`~mitosis.jobs.graph.layers`."""
    return layers({name: step.after for name, step in steps.items()})


def run_end(definition: JobDefinition, ended: Mapping[str, StepEnd]) -> RunEnd | None:
    """Return what the run has come to; None while a step has not ended.

    A failed step fails the run, also where a step after its failure has succeeded.
    """
    if definition.steps.keys() - ended.keys():
        return None
    ends = set(ended.values())
    if StepEnd.FAILED in ends:
        return RunEnd.FAILED
    return RunEnd.CANCELLED if StepEnd.CANCELLED in ends else RunEnd.SUCCESS


def _is_wanted(step: Step, started: Collection[str], ended: Mapping[str, StepEnd]) -> bool | None:
    """Return whether a step starts or is skipped; None while that is open."""
    if any(_is_open(name, outcome, started, ended) for name, outcome in step.after.items()):
        return None
    return all(_is_met(outcome, ended.get(name)) for name, outcome in step.after.items())


def _is_open(
    name: str, outcome: Outcome, started: Collection[str], ended: Mapping[str, StepEnd]
) -> bool:
    return name not in ended and not (outcome is Outcome.EACH and name in started)


def _is_met(outcome: Outcome, end: StepEnd | None) -> bool:
    match outcome:
        case Outcome.SUCCESS:
            return end is StepEnd.SUCCEEDED
        case Outcome.FAILURE:
            return end is StepEnd.FAILED
        case Outcome.EACH:  # tasks whose own predecessor has failed end by their edge
            return end in {None, StepEnd.SUCCEEDED, StepEnd.FAILED}
        case Outcome.ALWAYS:
            return True
