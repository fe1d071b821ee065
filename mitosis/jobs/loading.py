"""Definitions in files: YAML, of which JSON is a part. The only module here that reads one."""

import os
import stat
from dataclasses import replace
from pathlib import Path

from mitosis.contracts.errors import InvalidRequest
from mitosis.jobs.definition import JobDefinition
from mitosis.jobs.problems import Problem, placed, refusal
from mitosis.jobs.reading import MOST_PROBLEMS, examine
from mitosis.jobs.yaml_text import MAX_BYTES, Document, YamlProblem, read_yaml

_LENGTH_OF_AFTER = len(("steps", "NAME", "after", "NAME"))


def load_definition(path: Path) -> JobDefinition:
    """Return the definition in a file.

    Raises:
        InvalidRequest: it cannot be read, or lists all problems with line and column.
    """
    return read_definition(read_file(path), str(path))


def read_definition(text: str | bytes, file: str = "") -> JobDefinition:
    """Return the definition that a text is; see :func:`load_definition`."""
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


def read_file(path: Path) -> bytes:
    """Return the content of a regular file.

    Raises:
        InvalidRequest: it cannot be read, is no regular file, or is too large.
    """
    try:
        with open(path, "rb", opener=_open_without_waiting) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise InvalidRequest(f"{path} is not a regular file", field="FILE")
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise InvalidRequest(f"cannot read {path}: {error.strerror}", field="FILE") from None
    if len(content) > MAX_BYTES:
        raise InvalidRequest(f"{path} has more than {MAX_BYTES} bytes", field="FILE")
    return content


def _open_without_waiting(path: str, flags: int) -> int:
    """Open a file; a named pipe without a writer would be waited for."""
    return os.open(path, flags | os.O_NONBLOCK)
