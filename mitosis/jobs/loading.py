"""Definitions as text: YAML, of which JSON is a part."""

from dataclasses import replace

from mitosis.jobs.definition import JobDefinition
from mitosis.jobs.problems import MOST_PROBLEMS, Problem, placed, refusal
from mitosis.jobs.reading import examine
from mitosis.jobs.yaml_text import Document, YamlProblem, read_yaml

_LENGTH_OF_AFTER = len(("steps", "NAME", "after", "NAME"))


def read_definition(text: str | bytes, file: str = "") -> JobDefinition:
    """Return the definition that a text is.

    Args:
        text: YAML or JSON.
        file: its name, for the error.

    Raises:
        InvalidRequest: lists all problems with line and column.
    """
    definition, problems = examine_text(text)
    if definition is None or problems:
        raise refusal(problems, file)
    return definition


def examine_text(text: str | bytes) -> tuple[JobDefinition | None, list[Problem]]:
    """Return the definition, or its problems in the order of the text."""
    try:
        document = read_yaml(text)
    except YamlProblem as error:
        return None, [error.problem]
    definition, problems = examine(document.value)
    if not problems and not document.repeated:
        return definition, []
    located = [_located(one, document) for one in problems]
    repeated = document.repeated[:MOST_PROBLEMS]
    return None, placed([*located, *repeated], document.places)[:MOST_PROBLEMS]


def _located(problem: Problem, document: Document) -> Problem:
    """Place a step of ``after`` that the file has in a list of names."""
    path = problem.path
    if len(path) != _LENGTH_OF_AFTER or path[2] != "after":
        return problem
    names = document.value["steps"][path[1]].get("after")
    if not isinstance(names, list) or path[3] not in names:
        return problem
    return replace(problem, place=document.places[*path[:3], names.index(path[3])])
