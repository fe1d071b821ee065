"""The graph of a definition as text: a tree in which each step stands once."""

from collections.abc import Iterator
from dataclasses import dataclass

from mitosis.jobs.definition import JobDefinition, Step
from mitosis.jobs.fields import Outcome
from mitosis.jobs.order import layers_of


@dataclass(frozen=True, slots=True)
class Edge:
    before: str
    after: str
    outcome: Outcome


def edges_of(definition: JobDefinition) -> list[Edge]:
    """Return the edges between steps, sorted."""
    found = (
        Edge(before, name, outcome)
        for name, step in definition.steps.items()
        for before, outcome in step.after.items()
    )
    return sorted(found, key=lambda one: (one.before, one.after))


def text_graph(definition: JobDefinition) -> str:
    """Return the steps as a tree: each below the last of the steps that it comes after.

    The other steps that it comes after stand beside it. Its lines need no deep stack.
    """
    below = _children(definition)
    lines = [definition.name]
    waiting = [(name, "", at == 0) for at, name in enumerate(reversed(below.get(None, [])))]
    while waiting:
        name, indent, is_last = waiting.pop()
        lines.append(f"{indent}{'└─ ' if is_last else '├─ '}{_line(definition, name)}")
        inner = indent + ("   " if is_last else "│  ")
        waiting += [(one, inner, at == 0) for at, one in enumerate(reversed(below.get(name, [])))]
    return "\n".join(lines)


def size_text(step: Step) -> str:
    """Return the size of an array, such as ``200 tasks``; empty for one task."""
    if step.count is not None:
        return _tasks(step.count)
    if step.over is not None:
        return f"one per {step.over}" if isinstance(step.over, str) else _tasks(len(step.over))
    return "as many" if step.each_of else ""


def _tasks(count: int | str) -> str:
    return "1 task" if count == 1 else f"{count} tasks"


def _children(definition: JobDefinition) -> dict[str | None, list[str]]:
    """Return the steps below each step, and below None those that come first."""
    order = layers_of(definition.steps)
    layer_of = {name: number for number, layer in enumerate(order) for name in layer}
    below: dict[str | None, list[str]] = {}
    for layer in order:
        for name in layer:
            before = definition.steps[name].after
            parent = max(before, key=lambda one: (layer_of[one], one), default=None)
            below.setdefault(parent, []).append(name)
    return below


def _line(definition: JobDefinition, name: str) -> str:
    step = definition.steps[name]
    return "  ".join([name, *_remarks(step)])


def _remarks(step: Step) -> Iterator[str]:
    if size := size_text(step):
        yield size
    yield f"[{step.executed_by}]"
    if step.after and set(step.after.values()) | {Outcome.SUCCESS} == {Outcome.SUCCESS}:
        if len(step.after) > 1:
            yield f"after {', '.join(sorted(step.after))}"
    elif step.after:
        yield "after " + ", ".join(
            f"{name}: {outcome}" for name, outcome in sorted(step.after.items())
        )
    if step.when is not None:
        yield f"when {step.when}"
